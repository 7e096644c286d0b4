#!/usr/bin/env bash
# Downloads WMT14 English-German, cleans, tokenises, cuts into subwords and binarises it, into $DATA_DIR/bin.
# usage: prepare.sh [RECIPE ARGUMENTS]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=configuration.sh
source "$(dirname "${BASH_SOURCE[0]}")/configuration.sh"

recipe prepare "${configuration[@]}" "$@"
