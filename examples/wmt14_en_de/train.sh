#!/usr/bin/env bash
# Trains one model, from where it stopped, on all GPUs of this machine, or together with other machines (README.md).
# usage: train.sh [linformer_|two_level_]transformer_wmt_en_de [--k 32] [RECIPE ARGUMENTS]
#                 [-- ARGUMENTS OF fairseq-train]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=configuration.sh
source "$(dirname "${BASH_SOURCE[0]}")/configuration.sh"

recipe_for_model train "$@"
