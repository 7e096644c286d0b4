#!/usr/bin/env bash
# Turns the Transformers of the study (run.sh) into models with two levels and translates with them, without training;
# prints sacreBLEU with a paired bootstrap against the Transformer, seed by seed. TUNE=1 also fine-tunes each of them
# for one epoch and translates again. Finished steps are not repeated. For a study with run.sh's own settings of text and
# translation.
#   STUDY=results/quality K=8 SEEDS='1 2 3' SUBSET=valid TUNE= THREADS=2
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../recipe.sh
source "$(dirname "${BASH_SOURCE[0]}")/../recipe.sh"
prepare_environment

study="${STUDY:-$root/results/quality}"
k="${K:-8}"
seeds="${SEEDS:-1 2 3}"
subset="${SUBSET:-valid}"
text="$study/text"
plugin="$root/linformer_fairseq"
export OMP_NUM_THREADS="${THREADS:-2}"
cpu=()
"$bin/python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())' || cpu=(--cpu)
plain_encoder_of='from linformer_fairseq.cli.main import quiet_libraries; quiet_libraries()
from linformer_fairseq.trained import override_flags; print("\0".join(override_flags()), end="")'
mapfile -d '' -t plain_encoder < <("$bin/python" -c "$plain_encoder_of")
command_of='import json, sys; print(*json.load(open(sys.argv[1]))["command"], sep="\0", end="\0")'

logged() { # LOG COMMAND...
  if ! "${@:2}" >"$1" 2>&1; then
    tail "$1" >&2
    echo "error: $2 failed; all that it said is in $1" >&2
    exit 1
  fi
}

translate() { # CHECKPOINT FILE: detokenised translations, one a line
  if [ ! -f "$2" ]; then
    logged "$2.log" "$bin/fairseq-generate" "$text/bin" --user-dir "$plugin" --path "$1" --gen-subset "$subset" \
      --source-lang en --target-lang de --beam 4 --max-len-a 1 --max-len-b 50 --max-tokens 1024 \
      --required-batch-size-multiple 1 --num-workers 0 --tokenizer moses --remove-bpe "${plain_encoder[@]}" \
      "${cpu[@]}"
    grep '^D-' "$2.log" | sort -V | cut -f3 >"$2.part"
    mv "$2.part" "$2"
  fi
}

tune() { # CHECKPOINT FOLDER FLAGS...: to FOLDER/checkpoint_last.pt
  if [ ! -f "$2/done" ]; then
    rm -rf "$2"
    mapfile -d '' -t as_before < <("$bin/python" -c "$command_of" "$model/train.json")
    # the Transformer's own command; where a flag is there twice, the last one counts
    logged "$2.log" "${as_before[@]}" --arch two_level_transformer --finetune-from-model "$1" --save-dir "$2" \
      --lr 5e-4 --warmup-updates 100 --max-epoch 1 --max-update 0 "${@:3}"
    touch "$2/done"
  fi
}

for seed in $seeds; do
  model="$study/runs/transformer/seed-$seed/models/transformer"
  trained="$model/valid/averaged.pt"
  if [ ! -f "$trained" ]; then
    echo "error: $trained is missing: let run.sh train the Transformer with seed $seed first" >&2
    exit 2
  fi
  folder="$study/converted/k$k/seed-$seed"
  mkdir -p "$folder/$subset"
  translate "$trained" "$folder/$subset/transformer"
  shown=("$folder/$subset/transformer")
  for name in encoder,cross encoder,cross,decoder linear-decoder; do
    # as the study's variants have them: in two levels on sentences too, and every query opens slots of its own
    flags=(--linformer-projection two-level --linformer-k "$k" --linformer-exact-below 0 --linformer-open-slots 3)
    flags+=(--linformer-block-size 1)
    fit=()
    case "$name" in
      encoder,cross) flags+=(--linformer-attention "encoder,cross") ;;
      encoder,cross,decoder) # slots of two tokens in the decoder
        flags+=(--linformer-attention "encoder,cross,decoder" --linformer-decoder-k 512)
        ;;
      linear-decoder) # its E and F are fitted; two levels have nothing to learn
        flags+=(--linformer-attention "encoder,cross,decoder" --linformer-decoder-projection linear)
        flags+=(--linformer-window $((k / 2)) --linformer-init identity --linformer-mask-empty-slots)
        fit=(--data "$text/bin" --fit 1000)
        ;;
    esac
    start="$folder/$name.pt"
    if [ ! -f "$start" ]; then
      "$bin/python" -m linformer_fairseq.convert "$trained" "$start" "${flags[@]}" "${fit[@]}" --texts 0 \
        --threads "$OMP_NUM_THREADS"
    fi
    translate "$start" "$folder/$subset/$name"
    shown+=("$folder/$subset/$name")
    if [ -n "${TUNE:-}" ]; then
      tune "$start" "$folder/$name-tuned" "${flags[@]}"
      translate "$folder/$name-tuned/checkpoint_last.pt" "$folder/$subset/$name-tuned"
      shown+=("$folder/$subset/$name-tuned")
    fi
  done
  echo "seed $seed, k = $k, $subset set:"
  "$bin/sacrebleu" "$text/raw/$subset.de" --input "${shown[@]}" --metrics bleu --paired-bs --width 2 --format text
done
echo "A bootstrap over sentences knows nothing of seeds: another seed alone can move BLEU by as much."
