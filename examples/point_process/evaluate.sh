#!/usr/bin/env bash
# Measures a model of event sequences on the test set, and writes RUN/scores.json: nats per event and those of the process
# that made the events, the accuracy of the next type, the root mean square error of the waiting time, and how many events
# a second it was trained with (the median of the log).
# usage: evaluate.sh BIN RUN [FLAGS OF fairseq-validate]
#   evaluate.sh results/events/bin results/events/runs/linformer
# variables: AVERAGE=0 (checkpoints to average), DEVICE and PLUGIN (common.sh; default: examples/point_process)
set -Eeuo pipefail
PLUGIN=${PLUGIN:-examples/point_process}
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -ge 2 ] || fail "usage: evaluate.sh BIN RUN [FLAGS OF fairseq-validate]"
begin_evaluation 0 "$1" "$2"

names=(nats=test_loss type=test_type_accuracy mse=test_time_mse events/s=events)
validate "text: $(cksum <"$bin/test.npz")" fairseq-validate "$bin" --user-dir "$plugin" --task event_sequences \
  --valid-subset test --max-tokens 8192 --required-batch-size-multiple 1 --distributed-world-size 1 --log-format json \
  "${device[@]}" "${@:3}" --path "$model"
sed -n 's/.*"wps": "\([0-9.]*\)".*/\1/p' "$run/train.log" | sort -g |
  awk '{ own[NR] = $1 } END { printf "{\"events\": \"%s\"}\n", own[int((NR + 1) / 2)] }' >>"$run/validate.log"
if [ -f "$bin/truth.json" ]; then
  cat "$bin/truth.json" >>"$run/validate.log"
  names+=('true nats=truth')
fi
score "${names[@]}"
