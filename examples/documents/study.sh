#!/usr/bin/env bash
# The study of docs/documents.md: as the quick form of run.sh beside this, with models large enough and trained long
# enough to compare them, on documents made on the spot with glossaries at the beginning of some. It takes some 45
# core-hours, one training a core, and goes on where it was stopped.
#   study.sh [ARGUMENTS]
# Arguments go to `python -m linformer_fairseq.documents`; --help lists them: --arms and --seeds name fewer models, and
# --no-costs leaves time and memory to a later call with --jobs 1 on an idle machine.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

form=(--out "$root/results/documents-study" --made-train 600 --made-test 18 --glossary 3000 --bpe-merges 1000)
form+=(--layers 3 --dim 128 --ffn-dim 512 --k 128)
form+=(--start-updates 1200 --start-warmup-updates 300 --start-lr 2e-3 --start-dropout 0.1 --start-max-tokens 4096)
form+=(--resolutions 32 --updates 7000 --warmup-updates 300 --lr 2.5e-3 --linear-decay --dropout 0.1)
form+=(--max-tokens 2304 --validate-updates 250 --jobs 2)
prepare_environment
exec python -m linformer_fairseq.documents "${form[@]}" "$@"
