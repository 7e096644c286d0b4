# shellcheck shell=bash
# What the recipes have in common, to be sourced: `root` is the project's folder, `recipe STEP ARGUMENTS` runs a step in
# place of the script, `prepare_environment` sets `bin`, the folder of the environment's commands, and
# `has_option --NAME ARGUMENTS` tells whether an option is among the arguments.
# LINFORMER_VENV names a virtual environment to use instead of the project's own.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

prepare_environment() {
  if [ ! -t 2 ]; then
    export TQDM_MININTERVAL="${TQDM_MININTERVAL:-30}" # seconds between two states of a progress bar in a log
  fi
  if [ -z "${LINFORMER_VENV:-}" ]; then
    "$root/scripts/setup.sh"
  fi
  bin="${LINFORMER_VENV:-$root/.venv}/bin"
  if [ ! -x "$bin/python" ]; then
    echo "error: $bin/python is missing: let LINFORMER_VENV name a virtual environment, or unset it" >&2
    exit 2
  fi
  export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
}

recipe() {
  prepare_environment
  exec "$bin/python" -m linformer_fairseq.recipe "$@"
}

has_option() {
  local option="$1" argument
  shift
  for argument in "$@"; do
    case "$argument" in
      "$option" | "$option"=*) return 0 ;;
    esac
  done
  return 1
}
