#!/usr/bin/env bash
# Measures the percentage of dev and test texts that a fine-tuned model classifies correctly, and writes RUN/scores.json.
# usage: evaluate.sh BIN RUN [FLAGS OF fairseq-validate]
#   evaluate.sh results/polarity/bin results/polarity/runs/linformer
# variables: AVERAGE=0 (checkpoints to average, where train.sh got --keep-interval-updates for as many; 0 uses
# checkpoint_best.pt), DEVICE and PLUGIN (common.sh)
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -ge 2 ] || fail "usage: evaluate.sh BIN RUN [FLAGS OF fairseq-validate]"
begin_evaluation 0 "$1" "$2"

validate "text: $(cat "$bin"/*/*.idx "$bin"/label/*.bin | cksum)" fairseq-validate "$bin" --user-dir "$plugin" \
  --task sentence_prediction --criterion sentence_prediction --valid-subset valid,test --batch-size 32 --required-batch-size-multiple 1 \
  --distributed-world-size 1 --log-format json "${plain[@]}" "${device[@]}" "${@:3}" --path "$model"
score accuracy=test_accuracy 'dev accuracy=valid_accuracy'
