#!/usr/bin/env bash
# Trains one model on all GPUs of this machine. The same command resumes where it was stopped, and does nothing once it is
# done. The command is kept in RUN/command, the log in RUN/train.log.
# usage: train.sh BIN RUN ARCH [FLAGS OF fairseq-train]
#   train.sh data/wmt14/bin data/wmt14/runs/transformer transformer_wmt_en_de
#   train.sh data/wmt14/bin data/wmt14/runs/linformer-k64 linformer_transformer_wmt_en_de --linformer-k 64
# variables: DEVICE (common.sh), UPDATE_FREQ=8 (batches of a GPU in an update: 8 on one GPU are 1 on eight), SRC, TGT,
# DRY_RUN=1 (prints the command)
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -ge 3 ] || fail "usage: train.sh BIN RUN ARCH [FLAGS OF fairseq-train]"
[ -f "$1/dict.$src.txt" ] ||
  fail "$1 has no dict.$src.txt: name the folder that fairseq-preprocess wrote, OUT/bin of prepare.sh."
bin=$(realpath "$1") run=$(realpath -m "$2") arch=$3
shift 3
set_device

command=(
  fairseq-train "$bin" --user-dir "$plugin" --task translation --source-lang "$src" --target-lang "$tgt" \
    --arch "$arch" --share-all-embeddings --dropout 0.1 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --optimizer adam --adam-betas '(0.9, 0.98)' --lr 7e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
    --max-tokens 4096 --update-freq "${UPDATE_FREQ:-8}" --required-batch-size-multiple 1 --max-update 100000 --seed 1 \
    --validate-interval-updates 1000 --save-interval-updates 1000 --keep-interval-updates 10 --no-epoch-checkpoints \
    --log-format json --log-interval 100 "${device[@]}" "$@" --save-dir "$run"
)

if [ -n "${DRY_RUN:-}" ]; then
  printed "${command[@]}"
  exit
fi

trap 'stopped training "$run"' ERR

option() { # FLAG: the value that the command gives it last
  local i value=
  for i in "${!command[@]}"; do
    case ${command[i]} in
      "$1") value=${command[i + 1]} ;;
      "$1="*) value=${command[i]#*=} ;;
    esac
  done
  echo "$value"
}

rank=$(option --distributed-rank)
rank=${rank:-${RANK:-0}}
log=$run/train.log
gpus() { # the names of those that are used
  [[ " ${command[*]} " = *" --cpu "* ]] ||
    nvidia-smi ${CUDA_VISIBLE_DEVICES:+--id="$CUDA_VISIBLE_DEVICES"} --query-gpu=name --format=csv,noheader 2>/dev/null || true
}
if [ "$rank" -gt 0 ]; then # the first machine alone keeps anything
  ! grep -qs 'done training in' "$log" || exit 0
  mkdir -p "$run"
  log=$run/train-rank$rank.log
else
  lock "$run" training
  saved=$(find "$run" -maxdepth 1 -name 'checkpoint*.pt')
  # a training that has saved nothing yet may begin anew, with other flags too
  [ -n "$saved" ] || grep -qs 'done training in' "$log" || rm -f "$run"/{command,about,train.log}
  record "$run/command" "$run was begun" "go on with those, or name another RUN." \
    "# text $(cat "$bin"/dict.*.txt "$bin"/*.idx | cksum), GPUs: $(gpus | wc -l)"$'\n'"${command[0]}" "${command[@]:1}"
  if grep -qs 'done training in' "$log"; then
    echo "$run: already trained"
    exit
  fi
  rm -f "$run"/*.pt.tmp
  whole() { python -m zipfile -l "$1" >/dev/null 2>&1; }
  last=$run/checkpoint_last.pt
  if [ -f "$last" ] && ! whole "$last"; then # fairseq copies another one to it, and was killed meanwhile
    rm "$last"
    while read -r _ newest; do
      if whole "$newest"; then
        cp "$newest" "$last"
        break
      fi
    done < <(find "$run" -maxdepth 1 -name 'checkpoint*.pt' -printf '%T@ %p\n' | sort -gr)
  fi
  [ -f "$run/about" ] || {
    git -C "$root" describe --always --dirty 2>/dev/null || pip list 2>/dev/null | grep '^linformer' || echo unknown
    if [ "$(gpus | wc -l)" -gt 0 ]; then gpus | uniq -c; else lscpu | sed -n 's/^Model name: *//p'; fi
  } >"$run/about"
  [ ! -s "$log" ] || [ -z "$(tail -c 1 "$log")" ] || echo >>"$log" # a line that a kill cut short
fi

# With wrong distributed flags fairseq silently trains one model per process: an update then has no more tokens than one
# process holds.
most=$(($(option --max-tokens) * $(option --update-freq | tr , '\n' | sort -n | tail -n 1)))
check_words() {
  local words
  words=$(tail -n 0 -F --pid=$$ "$log" 2>/dev/null | grep -m 1 train_inner | sed 's/.*"wpb": "\([0-9]*\).*/\1/') || true
  [ "${words:-$((most + 1))}" -le "$most" ] || return 0
  echo "an update has only $words tokens, as one process alone holds (up to $most): look at the --distributed flags" \
    >"$run/.alone"
  pkill -P $$ -f fairseq-train
}
world=$(option --distributed-world-size)
world=${world:-${WORLD_SIZE:-1}} # torchrun sets the latter
if [ "$world" -gt 1 ] && [ "$rank" = 0 ] && [[ " ${command[*]} " != *" --batch-size "* ]]; then
  touch "$log"
  rm -f "$run/.alone"
  check_words &
fi
{ # read as a whole, so that this file may change while it trains
  "${command[@]}" 2>&1 | tee -a "$log" ||
    stopped fairseq-train "$run" "$log ($(cat "$run/.alone" 2>/dev/null || tail -n 1 "$log" | cut -c 1-200))"
  grep -q 'done training in' "$log" || [ "$rank" -gt 0 ] ||
    fail "fairseq-train ended without finishing its training, see $log: look at the --distributed flags." 1
  exit
}
