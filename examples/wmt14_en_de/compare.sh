#!/usr/bin/env bash
# Compares the Transformer with Linformer and two-level attention: prepares the text, trains and evaluates a model of each
# architecture (for those of this package, one for every k), and writes OUT/report.md. Nothing that is done is repeated.
# usage: compare.sh OUT [TEXT] [FLAGS OF fairseq-train]
#   compare.sh data/wmt14
# variables: ARCHS (default: the three), K='32 64', and those of prepare.sh, train.sh and evaluate.sh
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
here=$root/examples/wmt14_en_de
[ $# -ge 1 ] || fail "usage: compare.sh OUT [TEXT] [FLAGS OF fairseq-train]"
out=$1 text=()
shift
if [[ ${1:--} != -* ]]; then
  text=("$1")
  shift
fi
read -ra archs <<<"${ARCHS:-transformer_wmt_en_de linformer_transformer_wmt_en_de two_level_transformer_wmt_en_de}"
read -ra ks <<<"${K:-32 64}"
for k in "${ks[@]}"; do
  [[ $k =~ ^[1-9][0-9]*$ ]] || fail "K has $k: name projected dimensions from 1 on, as in K='32 64'."
done
set_device
export DEVICE="${device[*]}" # found once

{ # read as a whole, so that this file may change while models are trained
  "$here/prepare.sh" "$out" "${text[@]}"

  model() { # NAME ARCH [FLAGS OF fairseq-train]
    "$here/train.sh" "$out/bin" "$out/runs/$1" "${@:2}"
    "$here/evaluate.sh" "$out/bin" "$out/runs/$1" "$out/reference.$tgt"
  }
  runs=()
  for arch in "${archs[@]}"; do
    case $arch in
      # two-level attention is full attention below 768 tokens unless told otherwise; here k is studied on sentences
      two_level_*) exact=(--linformer-exact-below 0) ;;
      *) exact=() ;;
    esac
    case $arch in
      two_level_* | linformer_*)
        for k in "${ks[@]}"; do
          model "$arch-k$k" "$arch" --linformer-k "$k" "${exact[@]}" "$@"
          runs+=("$arch-k$k")
        done
        ;;
      *)
        model "$arch" "$arch" "$@"
        runs+=("$arch")
        ;;
    esac
  done

  python "$root/examples/studies/report.py" "$out" --arms "${runs[@]}"
  exit
}
