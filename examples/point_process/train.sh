#!/usr/bin/env bash
# Trains one model of event sequences. The same command resumes. RUN/command has the command, RUN/train.log the log.
# usage: train.sh BIN RUN ARCH [FLAGS OF fairseq-train]
# variables: UPDATES=3000, DEVICE and PLUGIN (common.sh; default: examples/point_process), DRY_RUN=1
set -Eeuo pipefail
PLUGIN=${PLUGIN:-examples/point_process} updates=${UPDATES:-3000}
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
begin_training dict.txt "$@"
train fairseq-train "$bin" --user-dir "$plugin" --task event_sequences --criterion event_sequences --arch "$arch" \
  --tokens-per-sample 2048 --decoder-layers 2 --decoder-embed-dim 64 --decoder-ffn-embed-dim 128 \
  --decoder-attention-heads 4 --decoder-normalize-before --dropout 0 --attention-dropout 0 \
  --optimizer fused_adam --adam-betas '(0.9, 0.98)' --clip-norm 1 --lr 3e-3 --lr-scheduler polynomial_decay \
  --warmup-updates $((updates / 10)) --total-num-update "$updates" --max-update "$updates" --seed 1 --num-workers 0 \
  --max-tokens 4096 --required-batch-size-multiple 1 --validate-interval-updates 250 --save-interval-updates 250 \
  --keep-interval-updates 1 --no-epoch-checkpoints --log-format json --log-interval 10 \
  "${device[@]}" "${@:4}" --save-dir "$run"
