#!/usr/bin/env bash
# Makes a small synthetic text, trains a Transformer, a Linformer and a model with two-level attention on it, translates
# with each, reports quality and speed, and then times models of that size on sentences of 256 to 4,096 tokens.
# usage: run.sh [OUT]      (default: results/quickstart in the project)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -le 1 ] || fail "usage: run.sh [OUT]"
out=${1:-$root/results/quickstart}
size=(
  --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4
  --decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4
)

# 1. synthetic captions: 30,000 pairs of English and German sentences
python "$root/examples/quickstart/make_text.py" "$out/text"

# 2. sentences: what quality it costs to attend to k slots
export ARCHS='transformer linformer_transformer two_level_transformer' K=${K:-16} BPE_MERGES=800 UPDATE_FREQ=1 AVERAGE=3
"$root/examples/wmt14_en_de/compare.sh" "$out" "$out/text" "${size[@]}" --dropout 0 --lr 5e-3 --warmup-updates 200 \
  --max-tokens 512 --max-update 1200 --validate-interval-updates 150 --save-interval-updates 150 \
  --max-source-positions 64 --max-target-positions 64 --num-workers 0

# 3. long texts: what time it saves
python "$root/scripts/benchmark.py" --out "$out" --flags "${size[*]}" --vocabulary 1000 --repeats 3
