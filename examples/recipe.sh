# shellcheck shell=bash
# What the recipes have in common, to be sourced: `root` is the project's folder, and `recipe STEP ARGUMENTS` runs a step.
# LINFORMER_VENV names a virtual environment to use instead of the project's own.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

recipe() {
  if [ ! -t 2 ]; then
    export TQDM_MININTERVAL="${TQDM_MININTERVAL:-30}" # seconds between two states of a progress bar in a log
  fi
  if [ -z "${LINFORMER_VENV:-}" ]; then
    "$root/scripts/setup.sh"
  fi
  local python="${LINFORMER_VENV:-$root/.venv}/bin/python"
  if [ ! -x "$python" ]; then
    echo "error: $python is missing: let LINFORMER_VENV name a virtual environment, or unset it" >&2
    exit 2
  fi
  PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}" exec "$python" -m linformer_fairseq.recipe "$@"
}
