# shellcheck shell=bash
# What the studies have in common, to be sourced: `root` is the project's folder, `prepare_environment` sees to an
# environment with fairseq, that of PATH or else the project's own, and `has_option --NAME ARGUMENTS` tells whether an
# option is among the arguments.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"

prepare_environment() {
  if [ ! -t 2 ]; then
    export TQDM_MININTERVAL="${TQDM_MININTERVAL:-30}" # seconds between two states of a progress bar in a log
  fi
  if ! command -v fairseq-train >/dev/null; then
    "$root/scripts/setup.sh"
    export PATH="$root/.venv/bin:$PATH"
  fi
  export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
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
