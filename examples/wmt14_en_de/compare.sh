#!/usr/bin/env bash
# Everything: prepares the text, trains and evaluates the Transformer, and Linformer and two levels for every k, and
# writes the report.
# usage: compare.sh [--k 32,64] [--projection linear] [RECIPE ARGUMENTS] [-- ARGUMENTS OF EVERY fairseq-train]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=configuration.sh
source "$(dirname "${BASH_SOURCE[0]}")/configuration.sh"

recipe compare "${configuration[@]}" "$@"
