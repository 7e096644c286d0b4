#!/usr/bin/env bash
# Trains a small Transformer, Linformers and models of two levels on a corpus made on the spot (or on --data DIR) and
# reports how they compare. All arguments go to the recipe; --help lists them, with the sizes and settings used here.
# LINFORMER_VENV names a virtual environment to use instead of the project's own.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

recipe compare --out "$root/results/quickstart" --exact-below 0 "$@"
