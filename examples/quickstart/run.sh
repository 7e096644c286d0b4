#!/usr/bin/env bash
# Trains a small Transformer, Linformers and models of two levels on a corpus made on the spot (or on --data DIR) and
# reports how they compare, and their times on sentences of 256 to 4,096 tokens. All arguments go to the recipe; --help
# lists them, with the sizes and settings used here.
# LINFORMER_VENV names a virtual environment to use instead of the project's own.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

configuration=(
  --out "$root/results/quickstart" --exact-below 0 --jobs 2
  # time against length
  --length-tokens 4096 --lengths "256,512,1024,2048,4096" --length-k 64 --length-training --length-repeats 3
)
recipe compare "${configuration[@]}" "$@"
