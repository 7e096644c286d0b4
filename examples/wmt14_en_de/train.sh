#!/usr/bin/env bash
# Trains one model on all GPUs of this machine. The same command resumes where it was stopped, and does nothing once it is
# done. The command is kept in RUN/command, the log in RUN/train.log.
# usage: train.sh BIN RUN ARCH [FLAGS OF fairseq-train]
#   train.sh data/wmt14/bin data/wmt14/runs/transformer transformer_wmt_en_de
#   train.sh data/wmt14/bin data/wmt14/runs/linformer-k64 linformer_transformer_wmt_en_de --linformer-k 64
# variables: DEVICE (common.sh), UPDATE_FREQ=8 (batches per GPU and update: 8 on one GPU equal 1 on eight), SRC, TGT,
# DRY_RUN=1 (only prints the command)
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
begin_training "dict.$src.txt" "$@"

train fairseq-train "$bin" --user-dir "$plugin" --task translation --source-lang "$src" --target-lang "$tgt" \
  --arch "$arch" --share-all-embeddings --dropout 0.1 \
  --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
  --optimizer fused_adam --adam-betas '(0.9, 0.98)' --lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
  --max-tokens 4096 --update-freq "${UPDATE_FREQ:-8}" --required-batch-size-multiple 1 --max-update 100000 --seed 1 \
  --validate-interval-updates 1000 --save-interval-updates 1000 --keep-interval-updates 10 --no-epoch-checkpoints \
  --log-format json --log-interval 100 "${device[@]}" "${@:4}" --save-dir "$run"
