#!/usr/bin/env bash
# The study of classification (README.md beside this): fine-tunes the models of examples/masked_lm on labelled texts and
# writes report.md to its folder. It goes on where it was stopped.
#   run.sh --data DIR [ARGUMENTS]   DIR holds train, dev and test as .tsv or .tsv.gz, with the columns label and text, or
#                                   folders that do
# Arguments go to `python -m linformer_fairseq.classification`; --help lists them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

prepare_environment
exec python -m linformer_fairseq.classification --pretrained "$root/results/masked-lm" \
  --out "$root/results/classification" "$@"
