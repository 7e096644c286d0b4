#!/usr/bin/env bash
# Fine-tunes the pretrained model that --finetune-from-model names, as fairseq's README on custom classification does. Use
# the ARCH and attention flags of the pretraining. The same command resumes where it was stopped.
# usage: train.sh BIN RUN ARCH --finetune-from-model MODEL [FLAGS OF fairseq-train]
#   train.sh results/polarity/bin results/polarity/runs/linformer linformer_roberta_tiny --linformer-k 128 \
#     --finetune-from-model results/masked_lm/runs/linformer/checkpoint_best.pt
# variables: EPOCHS=10, UPDATE_FREQ=1 (batches per GPU and update), DEVICE and PLUGIN (common.sh), DRY_RUN=1
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
begin_training input0/dict.txt "$@"
texts=$(sed -n 's/.*train: \([0-9]*\) sents.*/\1/p' "$bin/label/preprocess.log")
epochs=${EPOCHS:-10} frequency=${UPDATE_FREQ:-1}
batches=$(((texts + 31) / 32))
updates=$((epochs * ((batches + frequency - 1) / frequency))) # with one GPU

train fairseq-train "$bin" --user-dir "$plugin" --task sentence_prediction --criterion sentence_prediction \
  --num-classes "$(wc -l <"$bin/label/dict.txt")" --init-token 0 --separator-token 2 --shorten-method truncate \
  --arch "$arch" --max-positions 512 --dropout 0.1 --attention-dropout 0 \
  --optimizer fused_adam --adam-betas '(0.9, 0.98)' --adam-eps 1e-6 --weight-decay 0.01 --clip-norm 1 \
  --lr 5e-4 --lr-scheduler polynomial_decay --warmup-updates $((updates * 6 / 100)) --total-num-update "$updates" \
  --batch-size 32 --update-freq "$frequency" --required-batch-size-multiple 1 --max-epoch "$epochs" --seed 1 \
  --best-checkpoint-metric accuracy --maximize-best-checkpoint-metric --no-epoch-checkpoints \
  --log-format json --log-interval 50 "${device[@]}" "${@:4}" --save-dir "$run"
