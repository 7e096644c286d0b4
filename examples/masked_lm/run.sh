#!/usr/bin/env bash
# The study of masked language models (README.md beside this): pretrains an encoder with each kind of attention on plain
# text and writes report.md to its folder. It goes on where it was stopped.
#   run.sh --data DIR [ARGUMENTS]   DIR holds *.txt or *.txt.gz: a paragraph a line, an empty line between two documents
# Arguments go to `python -m linformer_fairseq.masked_lm`; --help lists them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

prepare_environment
exec python -m linformer_fairseq.masked_lm --out "$root/results/masked-lm" "$@"
