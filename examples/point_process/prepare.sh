#!/usr/bin/env bash
# Makes what the task event_sequences reads, OUT/bin, from TEXT, a folder with {train,valid,test}.txt, and truth.json if
# make_events.py has written it. The same command resumes.
# usage: prepare.sh OUT TEXT
#   prepare.sh results/events data/made-events
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# = 2 ] || fail "usage: prepare.sh OUT TEXT"
[ -d "$2" ] || fail "$2 is missing: name a folder with train.txt, valid.txt and test.txt, or run make_events.py."
out=$(realpath -m "$1") text=$(realpath "$2") work=$out/bin.part
lock "$out" preparing
prepare_once prepare.sh --text "$text" --sha256 "$(cat "$text"/*.txt | sha256sum | cut -c 1-16)"

python "$root/examples/point_process/read_events.py" "$text" "$work" || exit 2 # it has said why
[ ! -f "$text/truth.json" ] || cp "$text/truth.json" "$work"
mv "$work" "$out/bin"
echo "$out/bin: prepared"
