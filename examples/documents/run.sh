#!/usr/bin/env bash
# The study of documents (README.md beside this): trains a Transformer on sentences, goes on from there on documents with
# each kind of attention, translates whole documents and writes report.md to its folder. It goes on where it was stopped.
#   run.sh [ARGUMENTS]              the quick form: small models on documents made on the spot, in some minutes
#   run.sh --data DIR [ARGUMENTS]   on train, valid and test in DIR, as .en and .de, plain or .gz: a sentence a line, an
#                                   empty line between two documents; trained for as long as models need to learn it,
#                                   hours for each on one core
# Arguments go to `python -m linformer_fairseq.documents`; --help lists them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

form=(--out "$root/results/quick-documents" --made-train 120 --made-test 3 --glossary 400 --bpe-merges 600)
form+=(--max-subwords 1024 --lengths "512,1024,2048" --layers 2 --dim 64 --ffn-dim 256 --dropout 0.1 --seeds 1)
form+=(--start-updates 700 --start-warmup-updates 200 --start-lr 3e-3 --start-dropout 0.1 --updates 300 --lr 3e-3)
form+=(--warmup-updates 50 --validate-updates 75 --beam 2 --batch-tokens 4096 --cost-repeats 2 --no-free --jobs 2)
form+=(--arms "transformer,two-level-all,linformer-all,sentences,converted")
if has_option --data "$@"; then  # as models learnt the manual of docs/documents.md
  form=(--out "$root/results/documents" --bpe-merges 4000 --layers 3 --dim 128 --ffn-dim 512 --k 128)
  form+=(--start-updates 4000 --start-warmup-updates 500 --start-lr 3e-3 --start-dropout 0.1 --start-max-tokens 4096)
  form+=(--resolutions "8,16,32" --updates 10000 --warmup-updates 300 --lr 2.5e-3 --linear-decay --dropout 0.1)
  form+=(--max-tokens 2304 --validate-updates 250)
fi
prepare_environment
exec python -m linformer_fairseq.documents "${form[@]}" "$@"
