#!/usr/bin/env bash
# Measures the perplexity of a masked language model on the validation text, and on the test text where there is one, and
# writes RUN/scores.json. For all models of one length the same tokens are masked.
# usage: evaluate.sh BIN RUN [FLAGS OF fairseq-validate]
#   evaluate.sh results/masked_lm/bin results/masked_lm/runs/linformer
# variables: AVERAGE=0 (checkpoints to average, where train.sh got --keep-interval-updates for as many; 0 uses
# checkpoint_best.pt), DEVICE and PLUGIN (common.sh)
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -ge 2 ] || fail "usage: evaluate.sh BIN RUN [FLAGS OF fairseq-validate]"
begin_evaluation 0 "$1" "$2"

sets=valid names=(perplexity=valid_ppl)
[ ! -f "$bin/test.idx" ] || sets=valid,test names+=('test perplexity=test_ppl')
validate "text: $(cat "$bin"/*.idx | cksum)" fairseq-validate "$bin" --user-dir "$plugin" --task masked_lm \
  --valid-subset "$sets" --seed 1 --max-tokens 8192 --required-batch-size-multiple 1 --distributed-world-size 1 \
  --log-format json "${plain[@]}" "${device[@]}" "${@:3}" --path "$model"
score "${names[@]}"
