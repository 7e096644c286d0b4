#!/usr/bin/env bash
# Lints the project, checks its types and runs its tests on the current fairseq, and on fairseq 0.12.2 where there is a
# Python 3.10.
# usage: scripts/test.sh [--all] [PYTEST ARGUMENTS]
#   --all   every test on both. Without it the tests marked `exhaustive` are left out, and fairseq 0.12.2 is given those
#           that depend on fairseq.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

stock_tests="tests/modules/test_base.py tests/modules/test_registry.py tests/models tests/optim tests/commands tests/examples/test_old_fairseq.py"
if [ "${1-}" = --all ]; then
  shift
  set -- -m "" "$@"
  stock_tests=tests
fi

set -m # a process group of its own, so that a pip that it runs ends with it
scripts/setup.sh --stock & # beside the other and the first tests, as it waits for downloads most of its time
stock=$!
set +m
trap 'kill -- "-$stock" 2>/dev/null || true' EXIT
scripts/setup.sh
.venv/bin/ruff check .
.venv/bin/ruff format --check .
mapfile -t shell_files < <(find scripts examples .ci -type f \( -name '*.sh' -o -path '.ci/run' \) | sort)
.venv/bin/shellcheck "${shell_files[@]}"
.venv/bin/mypy
echo "test: current fairseq"
.venv/bin/python -m pytest "$@"

status=0
wait "$stock" || status=$?
trap - EXIT
if [ "$status" -eq 0 ]; then
  echo "test: fairseq 0.12.2"
  # paths among the arguments take the place of these
  .venv-stock/bin/python -m pytest -o testpaths="$stock_tests" "$@"
elif [ "$status" -ne 3 ]; then # 3: no Python 3.10, as set-up has said
  exit "$status"
fi
