#!/usr/bin/env bash
# Checks TEXT, a folder with {train,valid,test}.txt, and makes what the task event_sequences reads of it, OUT/bin.
# usage: prepare.sh OUT TEXT
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
ls "${2:-}"/{train,valid,test}.txt &>/dev/null || fail "usage: prepare.sh OUT TEXT, which has {train,valid,test}.txt"
out=$(realpath -m "$1") text=$(realpath "$2") work=$out/bin.part
lock "$out" preparing
prepare_once prepare.sh --text "$text" --sha256 "$(cat "$text"/{train,valid,test}.txt | sha256sum | cut -c 1-16)"
export PYTHONPATH=$PYTHONPATH:$root/examples
python -c 'import sys, point_process.events as e; e.write_dictionary(*sys.argv[1:])' "$text" "$work" || exit 2
cp "$text"/{train,valid,test}.txt "$work"
mv "$work" "$out/bin"
