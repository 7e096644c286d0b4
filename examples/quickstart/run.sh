#!/usr/bin/env bash
# Trains a small Transformer, Linformers and models of two levels on a corpus made on the spot (or on --data DIR) and
# reports how they compare. All arguments go to the recipe; --help lists them.
# LINFORMER_VENV names a virtual environment to use instead of the project's own.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"

configuration=(
  --out "$root/results/quickstart"
  # corpus: sizes of the made one, merges of the joint BPE
  --made-train 14000 --made-test 500 --bpe-merges 800
  # model sizes, unless --arch is given
  --layers 3 --dim 128 --heads 4 --ffn-dim 256
  # Linformer (linear) and two levels, unless --k or --attention is given
  --default-k '8,16' --default-attention 'encoder,cross' --projection 'linear,two-level'
  # training
  --epochs 4 --max-tokens 1024 --lr 3e-3 --warmup-updates 400 --dropout 0.1 --label-smoothing 0.1
  --validate-updates 200 --seed 1
  # translation
  --beam 5 --lenpen 1
)
recipe compare "${configuration[@]}" "$@"
