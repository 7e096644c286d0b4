#!/usr/bin/env bash
# Creates the virtual environment .venv with everything that the project needs, or leaves a good one alone.
# usage: scripts/setup.sh [--stock]
#   --stock   .venv-stock instead: Python 3.10 with fairseq 0.12.2, the last release of fairseq itself
# PYTHON names the interpreter of .venv; without it the first fitting one is taken.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  echo "usage: scripts/setup.sh [--stock]" >&2
  exit 2
}

stock=false
case "${1-}" in
  "") ;;
  --stock) stock=true ;;
  *) usage ;;
esac

if $stock; then
  venv=.venv-stock
  fits="(3, 10) == sys.version_info[:2]"
  wanted="Python 3.10"
  without="it is needed for fairseq 0.12.2 alone, which is left out"
  candidates=(python3.10 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.10.*/bin/python)
else
  venv=.venv
  fits="sys.version_info >= (3, 11)"
  wanted="Python 3.11 or newer"
  without="install one, or name it in PYTHON"
  candidates=(python3.11 python3.12 python3.13 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-3].*/bin/python)
  if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
fi

find_python() {
  local candidate
  for candidate in "${candidates[@]}"; do
    # a name that is found need not run: pyenv puts a stub for every version it knows into PATH
    if "$candidate" -c "import sys; sys.exit(not ($fits))" 2>/dev/null; then
      # the interpreter itself, not that of an active environment, which may be the one to be made again
      "$candidate" -c "import os, sys; print(os.path.realpath(sys._base_executable))"
      return
    fi
  done
  echo "setup: there is no $wanted here ($without)" >&2
  return 3
}

python=$(find_python)
# the environment is good if these are what it was made from, and it works
made_from=$(sha256sum setup.py constraints.txt scripts/setup.sh | sha256sum | cut -d' ' -f1)
made_from="$made_from $PWD"
stamp=$venv/made-from
if [ "$(cat "$stamp" 2>/dev/null)" = "$made_from" ]; then
  imports="linformer_fairseq, doit, yaml, matplotlib, sacremoses, build, hypothesis, pytest, pytest_cov, twine, xdist"
  if [ -x "$venv/bin/ruff" ] && [ -x "$venv/bin/shellcheck" ] && [ -x "$venv/bin/mypy" ] &&
    "$venv/bin/python" -c "import $imports" >/dev/null 2>&1; then
    exit 0
  fi
  echo "setup: $venv is broken and is made again"
fi

echo "setup: making $venv with $("$python" --version) (some minutes)"
rm -rf "$venv"
"$python" -m venv "$venv"
# without compiling 15,000 modules, most of which nobody imports: Python compiles those that it does
pip() {
  "$venv/bin/python" -m pip --disable-pip-version-check install --quiet --no-compile --constraint constraints.txt "$@"
}

if $stock; then
  # newer pips refuse the metadata of the omegaconf that fairseq 0.12.2 pins
  pip "pip<24.1"
  echo "setup: installing torch and fairseq 0.12.2"
  pip torch numpy
  pip fairseq
  # the packages of other attention need a newer torch
  extras="recipes,test"
else
  echo "setup: installing torch"
  pip torch numpy setuptools wheel cython
  echo "setup: installing fairseq"
  # its build imports torch; in an environment of its own pip would fetch a second, newer one for that
  pip --no-build-isolation fairseq-fixed
  extras="recipes,peers,test"
fi
echo "setup: installing linformer_fairseq"
pip setuptools wheel
pip --no-build-isolation --editable ".[$extras]"
# fairseq looks for a bare --user-dir beside itself, where an editable install puts nothing
fairseq=$("$venv/bin/python" -c "from importlib.util import find_spec; print(find_spec('fairseq').origin)")
ln -sfn "$PWD/linformer_fairseq" "$(dirname "$fairseq")/../linformer_fairseq"
"$venv/bin/python" -c "import linformer_fairseq" >/dev/null
echo "$made_from" >"$stamp"
echo "setup: $venv is ready"
