#!/usr/bin/env bash
# The study of docs/documents.md: as run.sh beside this, with models large enough and trained long enough to compare them.
# Hours to days on two cores, one training a core; it goes on where it was stopped.
#   study.sh [ARGUMENTS]              on documents made on the spot, with glossaries at the beginning of some
#   study.sh --data DIR [ARGUMENTS]   on documents of your own
# Arguments go to `python -m linformer_fairseq.documents`; --help lists them: --arms and --seeds name fewer models, and
# --no-costs leaves time and memory to a later call with --jobs 1 on an idle machine.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

form=(--out "$root/results/documents-study" --made-train 600 --made-test 18 --glossary 3000 --bpe-merges 1000)
form+=(--resolutions 32 --dropout 0.1 --start-dropout 0.1 --start-updates 1200 --start-warmup-updates 300)
form+=(--start-lr 2e-3 --updates 7000 --warmup-updates 300 --lr 2.5e-3)
if has_option --data "$@"; then
  form=(--out "$root/results/documents-study-own" --bpe-merges 4000 --resolutions "8,16,32" --dropout 0.1)
  form+=(--start-dropout 0.1 --start-updates 4000 --start-warmup-updates 500 --start-lr 3e-3 --updates 10000)
  form+=(--warmup-updates 300 --lr 2.5e-3)
fi
form+=(--layers 3 --dim 128 --ffn-dim 512 --k 128 --start-max-tokens 4096 --max-tokens 2304)
form+=(--linear-decay --validate-updates 250 --jobs 2)
prepare_environment
exec "$bin/python" -m linformer_fairseq.documents "${form[@]}" "$@"
