#!/usr/bin/env bash
# Pretrains one masked language model, as fairseq's RoBERTa README does. The same command resumes where it was stopped.
# The command is kept in RUN/command, the log in RUN/train.log.
# usage: train.sh BIN RUN ARCH [FLAGS OF fairseq-train]
#   train.sh results/masked_lm/bin results/masked_lm/runs/linformer linformer_roberta_tiny --linformer-k 128
# variables: UPDATES=10000, UPDATE_FREQ=1 (batches per GPU and update), DEVICE and PLUGIN (common.sh), DRY_RUN=1
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
begin_training dict.txt "$@"
updates=${UPDATES:-10000}

train fairseq-train "$bin" --user-dir "$plugin" --task masked_lm --criterion masked_lm --arch "$arch" \
  --sample-break-mode none --tokens-per-sample 512 --dropout 0.1 --attention-dropout 0 \
  --optimizer fused_adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1 \
  --lr 1e-3 --lr-scheduler polynomial_decay --warmup-updates $((updates / 10)) --total-num-update "$updates" \
  --max-tokens 8192 --update-freq "${UPDATE_FREQ:-1}" --required-batch-size-multiple 1 --max-update "$updates" --seed 1 \
  --validate-interval-updates 250 --save-interval-updates 250 --keep-interval-updates 1 --no-epoch-checkpoints \
  --log-format json --log-interval 50 "${device[@]}" "${@:4}" --save-dir "$run"
