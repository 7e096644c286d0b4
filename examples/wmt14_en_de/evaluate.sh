#!/usr/bin/env bash
# Averages the last checkpoints of one trained model, translates newstest2014, and prints its scores and speed.
# usage: evaluate.sh [linformer_|two_level_]transformer_wmt_en_de [--k 32] [RECIPE ARGUMENTS]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=configuration.sh
source "$(dirname "${BASH_SOURCE[0]}")/configuration.sh"

recipe_for_model evaluate "$@"
