#!/usr/bin/env bash
# Makes a small text, trains a Transformer, a Linformer and a model with two-level attention on it, translates with each,
# reports quality and speed, and then times models of that size on sentences of 256 to 4,096 tokens.
# usage: run.sh [OUT]      (results/quickstart in the project)
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../wmt14_en_de/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../wmt14_en_de/common.sh"
[ $# -le 1 ] || fail "usage: run.sh [OUT]"
out=${1:-$root/results/quickstart}
size=(
  --encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4
  --decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4
)

# 1. made captions, 30,000 pairs of English and German
[ -f "$out/text/train.en" ] ||
python "$root/examples/quickstart/make_text.py" "$out/text"

# 2. sentences: what attention to k slots costs
export ARCHS='transformer linformer_transformer two_level_transformer' K=${K:-8} BPE_MERGES=2000 UPDATE_FREQ=1 AVERAGE=1
"$root/examples/wmt14_en_de/compare.sh" "$out" "$out/text" "${size[@]}" --dropout 0 --num-workers 0 --max-tokens 4096

# 3. long texts: what it saves
python "$root/scripts/benchmark.py" --out "$out" --flags "${size[*]}" --k 64 --lengths 256 512 1024 2048 4096
