#!/usr/bin/env bash
# Measures a model of event sequences on the test set, and writes RUN/scores.json.
# usage: evaluate.sh BIN RUN [FLAGS OF fairseq-validate]
# variables: AVERAGE=0 (checkpoints to average), DEVICE and PLUGIN (common.sh; default: examples/point_process)
set -Eeuo pipefail
PLUGIN=${PLUGIN:-examples/point_process}
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -ge 2 ] || fail "usage: evaluate.sh BIN RUN [FLAGS OF fairseq-validate]"
begin_evaluation 0 "$1" "$2"
validate "text: $(cksum <"$bin/test.txt")" fairseq-validate "$bin" --user-dir "$plugin" --task event_sequences \
  --valid-subset test --batch-size 8 --required-batch-size-multiple 1 --distributed-world-size 1 --log-format json \
  "${device[@]}" "${@:3}" --path "$model"
score nats=test_loss "types right, %=test_correct" "squared error=test_squared"
