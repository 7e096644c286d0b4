#!/usr/bin/env bash
# The study of quality (docs/quality.md): trains and translates the main models with three seeds, or what --variants and
# --seeds name, and writes results/quality/report.md; DATA holds train, valid and test as .en and .de, plain or .gz.
# It goes on where it was stopped. Further arguments go to `python -m linformer_fairseq.quality`; --help lists them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

if [ $# -lt 1 ]; then
  echo "usage: run.sh DATA [ARGUMENTS]" >&2
  exit 2
fi
prepare_environment
exec "$bin/python" -m linformer_fairseq.quality --data "$1" --out "$root/results/quality" "${@:2}"
