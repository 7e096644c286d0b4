# shellcheck shell=bash disable=SC2034,SC2154  # variables of the scripts that source this one
# What the recipes share; sourced, not run. The environment whose commands come first in PATH is used, or the project's
# .venv if there is no fairseq-train at all. DEVICE: flags for all of fairseq's commands, by default --fp16 on a machine with
# a GPU and otherwise --cpu (or --amp, '--cpu --num-workers 0'). PLUGIN=examples/peers, or any such folder,
# adds other kinds of attention.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
plugin=$(cd "$root" && realpath -m "${PLUGIN:-linformer_fairseq}")
src=${SRC:-en} tgt=${TGT:-de}
export PYTHONUNBUFFERED=1 # so that lines of two outputs do not mix in a log
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
[ -t 2 ] || export TQDM_MININTERVAL=${TQDM_MININTERVAL:-30} # seconds between two states of a progress bar in a log

fail() { # SENTENCE [STATUS]
  echo "error: $1" >&2
  exit "${2:-2}"
}

if ! command -v fairseq-train >/dev/null; then
  "$root/scripts/setup.sh"
  PATH=$root/.venv/bin:$PATH
fi
for command in python fairseq-train sacrebleu sacremoses subword-nmt curl flock pkill; do
  command -v "$command" >/dev/null ||
    fail "$command is missing: pip install '${root}[recipes]' brings the Python ones, your system the others."
done

set_device() { # DEVICE, or what this machine has, as the array `device`
  local flags=${DEVICE:-}
  [ -n "$flags" ] || flags=$(python -c 'import torch; print("--fp16" if torch.cuda.is_available() else "--cpu")') ||
    fail "torch cannot be imported, see the lines above: run scripts/setup.sh, or fix the environment."
  read -ra device <<<"$flags"
  [[ " ${device[*]} " != *" --bf16 "* ]] ||
    fail "with --bf16 fairseq's commands look for a TPU: use --fp16 or --amp, or fairseq-hydra-train with common.bf16=true."
}

lock() { # FOLDER WORK: held until this script and all that it has started have ended
  [[ $1 != *[:,]* ]] || fail "$1 has a colon or a comma, which fairseq takes for the end of a path: name another folder."
  mkdir -p "$1" 2>/dev/null && [ -w "$1" ] || fail "$1 cannot be written: name another folder."
  exec 9>"$1/.lock"
  flock --nonblock 9 ||
    fail "$1 is in use: another call is $2 there, or processes of a killed call still run; wait until they end."
}

stopped() { # WORK FOLDER LOG: ends the script where a command has failed
  local why=
  ((BASH_SUBSHELL == 0)) || exit 1 # the script itself will say so
  [ ! -d "$2" ] || [ "$(df -Pk "$2" | awk 'NR == 2 { print $4 }')" -gt 2048 ] || why=" because the disk of $2 is full"
  fail "$1 failed$why, see ${3:-the lines above}: fix that and run the same command again; it resumes from there." 1
}

commit() { # of this code, or what is installed of it
  git -C "$root" describe --always --dirty 2>/dev/null || pip list 2>/dev/null | grep '^linformer' || echo unknown
}

printed() { # COMMAND...: one flag with its values per line, as one would type them
  local word
  printf '%s' "$1"
  for word in "${@:2}"; do
    [[ $word == -[!0-9]* ]] && printf ' \\\n '
    [[ $word =~ ^[[:alnum:]_./=,:+@%-]+$ ]] && printf ' %s' "$word" || printf ' %s' "${word@Q}"
  done
  printf '\n'
}

record() { # FILE WHAT ADVICE COMMAND...: keeps the command in FILE, or refuses one that differs from what is kept there
  local file=$1 what=$2 advice=$3 changed
  printed "${@:4}" >"$file.now"
  [ -f "$file" ] || cp "$file.now" "$file"
  changed=$(diff "$file" "$file.now" | sed -n 's/^\([<>] .*[^ \\]\)[ \\]*$/\1/p' | tr -s ' ' | paste -sd ' ') || true
  rm "$file.now"
  [ -z "$changed" ] || fail "$what with different flags (<: then, >: now): $changed; $advice"
}

prepare_once() { # COMMAND...: what $out is made from; ends the script if it is whole; removes another command's $work
  if [ -f "$out/settings" ] && [ ! -d "$out/bin" ] && ! cmp --quiet "$out/settings" <(printed "$@"); then
    rm -rf "$work" "$out/settings"
  fi
  record "$out/settings" "$out was made" "go on with those, or name another OUT." "$@"
  if [ -d "$out/bin" ]; then
    echo "$out/bin: already prepared"
    exit
  fi
  mkdir -p "$work"
}

find_text() { # the array `files`: {train,valid,test}.{SRC,TGT} of $text, plain or .gz
  local name file
  files=()
  for name in {train,valid,test}.{"$src","$tgt"}; do
    file=$text/$name
    [ -f "$file" ] || file=$file.gz
    [ -f "$file" ] || fail "$text/$name is missing, and so is $name.gz: every set needs both languages."
    files+=("$file")
  done
}

new() { # FOLDER WORK: whether $work/FOLDER is still to be made, as `to`, which is renamed once it is complete
  [ ! -d "$work/$1" ] || return 1
  doing=$2 to=$work/$1.part
  echo "prepare: $doing"
  rm -rf "$to"
  mkdir "$to" || stopped "$doing" "$out"
}

set_utf8() { # a UTF-8 locale, as the variable `utf8`
  utf8=$(locale -a | awk 'tolower($0) ~ /utf-?8$/ && !found++')
  [ -n "$utf8" ] || fail "There is no UTF-8 locale here (locale -a): install one, such as C.UTF-8."
}

plain() { # [CONTROLS]: carriage returns, tabs and null bytes become spaces, a byte order mark goes, the last line ends
  LC_ALL=C sed -e '1s/^\xef\xbb\xbf//' -e 's/\r$//' -e "\$a\\" | tr "${1:-\r\t\000}" ' '
}

read_text() { # FILE TO [CONTROLS]: writes the plain text of a file, which may be gzipped
  local bad
  [[ $1 != *.gz ]] || gzip --test "$1" 2>/dev/null ||
    fail "$1 cannot be read, or is no whole gzip file: unpack or fetch it again."
  gzip -dcf "$1" | plain "${@:3}" >"$2"
  bad=$(LC_ALL=$utf8 grep -naxv -m 1 '.*' "$2" | cut -d : -f 1) || true
  [ -z "$bad" ] || fail "$1 is not UTF-8 text: line $bad cannot be read."
}

in_parts() { # FUNCTION ARGUMENT FROM TO: what the function makes of the lines of FROM, on all cores
  split --lines 20000 --suffix-length 5 "$3" "$4.part."
  printf '%s\n' "$4".part.* | xargs -d '\n' -P "$workers" -I {} bash -c "$1 \"\$0\" <\"\$1\" >\"\$1.done\"" "$2" {}
  cat "$4".part.*.done >"$4"
  rm "$4".part.*
  [ "$(wc -l <"$3")" = "$(wc -l <"$4")" ] || fail "$1 has lost lines of $3: run the same command again." 1
}

all_lines() { # TEXT BIN: refused unless fairseq-preprocess, whose workers guess where their parts begin, has read all of it
  grep -qF "$1: $(wc -l <"$1") sents" "$2/preprocess.log" ||
    fail "fairseq-preprocess has lost lines of ${1##*/}: run the same command again with WORKERS=1." 1
}

pieces() { # MODEL: cuts lines into sentencepiece's subwords
  PYTHONUTF8=1 python -c 'import sys, sentencepiece
model = sentencepiece.SentencePieceProcessor(model_file=sys.argv[1])
for line in sys.stdin:
    print(*model.encode(line.rstrip("\n"), out_type=str))' "$1"
}
moses() { # LANGUAGE: tokens as Moses makes them, without control characters
  sacremoses --quiet --language "$1" normalize --remove-control-chars tokenize --aggressive-dash-splits
}
subwords() { # CODES: cuts tokens as subword-nmt has learnt to
  subword-nmt apply-bpe --codes "$1"
}
export -f pieces moses subwords

begin_training() { # DICTIONARY [ARGUMENTS OF train.sh]: sets bin, run, arch and device; BIN has the dictionary
  [ $# -ge 4 ] || fail "usage: train.sh BIN RUN ARCH [FLAGS OF fairseq-train]"
  [ -f "$2/$1" ] || fail "$2 has no $1: name the folder that fairseq-preprocess wrote, OUT/bin of prepare.sh."
  bin=$(realpath "$2") run=$(realpath -m "$3") arch=$4
  set_device
}

option() { # FLAG: the value that the array `command` gives it last
  local i value=
  for i in "${!command[@]}"; do
    case ${command[i]} in
      "$1") value=${command[i + 1]} ;;
      "$1="*) value=${command[i]#*=} ;;
    esac
  done
  echo "$value"
}

gpus() { # the names of the GPUs in use
  [[ " ${command[*]} " = *" --cpu "* ]] ||
    nvidia-smi ${CUDA_VISIBLE_DEVICES:+--id="$CUDA_VISIBLE_DEVICES"} --query-gpu=name --format=csv,noheader 2>/dev/null || true
}

whole() { python -m zipfile -l "$1" >/dev/null 2>&1; } # CHECKPOINT: whether it is not cut short

resume() { # keeps the record of the training in $run, and ends the script once it is done
  local saved text last newest
  lock "$run" training
  saved=$(find "$run" -maxdepth 1 -name 'checkpoint*.pt')
  # a training that has saved nothing yet may start afresh, even with other flags
  [ -n "$saved" ] || grep -qs 'done training in' "$log" || rm -f "$run"/{command,about,train.log}
  text=$(shopt -s globstar nullglob && cat "$bin"/**/*.{txt,idx} "$bin"/label/*.bin | cksum)
  record "$run/command" "$run was begun" "go on with those, or name another RUN." \
    "# text $text, GPUs: $(gpus | wc -l)"$'\n'"${command[0]}" "${command[@]:1}"
  if grep -qs 'done training in' "$log"; then
    echo "$run: already trained"
    exit
  fi
  rm -f "$run"/*.pt.tmp
  last=$run/checkpoint_last.pt
  if [ -n "$saved" ] && ! whole "$last"; then # fairseq copies another checkpoint to it, and was killed before or during that
    rm -f "$last"
    while read -r _ newest; do
      if whole "$newest"; then
        cp "$newest" "$last"
        break
      fi
    done < <(find "$run" -maxdepth 1 -name 'checkpoint*.pt' -printf '%T@ %p\n' | sort -gr)
  fi
  [ -f "$run/about" ] || {
    commit
    if [ "$(gpus | wc -l)" -gt 0 ]; then gpus | uniq -c; else lscpu | sed -n 's/^Model name: *//p'; fi
  } >"$run/about"
  [ ! -s "$log" ] || [ -z "$(tail -c 1 "$log")" ] || echo >>"$log" # a line that a kill cut short
}

# With wrong distributed flags fairseq silently trains one model per process: an update then has no more tokens than one
# process holds.
check_words() {
  local words most
  most=$(($(option --max-tokens) * $(option --update-freq | tr , '\n' | sort -n | tail -n 1)))
  words=$(tail -n 0 -F --pid=$$ "$log" 2>/dev/null | grep -m 1 train_inner | sed 's/.*"wpb": "\([0-9]*\).*/\1/') || true
  [ "${words:-$((most + 1))}" -le "$most" ] || return 0
  echo "an update has only $words tokens, as one process alone holds (up to $most): look at the --distributed flags" \
    >"$run/.alone"
  pkill -P $$ -f fairseq-train
}

train() { # COMMAND...: runs or resumes fairseq-train in $run and ends the script; with DRY_RUN it prints the command
  local command=("$@") rank world log=$run/train.log
  if [ -n "${DRY_RUN:-}" ]; then
    printed "${command[@]}"
    exit
  fi
  trap 'stopped training "$run"' ERR
  rank=$(option --distributed-rank)
  rank=${rank:-${RANK:-0}}
  if [ "$rank" -gt 0 ]; then # only the first machine keeps anything
    ! grep -qs 'done training in' "$log" || exit 0
    mkdir -p "$run"
    log=$run/train-rank$rank.log
  else
    resume
  fi
  world=$(option --distributed-world-size)
  world=${world:-${WORLD_SIZE:-1}} # torchrun sets the latter
  if [ "$world" -gt 1 ] && [ "$rank" = 0 ] && [[ " ${command[*]} " != *" --batch-size "* ]]; then
    touch "$log"
    rm -f "$run/.alone"
    check_words &
  fi
  "${command[@]}" 2>&1 | tee -a "$log" ||
    stopped fairseq-train "$run" "$log ($(cat "$run/.alone" 2>/dev/null || tail -n 1 "$log" | cut -c 1-200))"
  grep -q 'done training in' "$log" || [ "$rank" -gt 0 ] ||
    fail "fairseq-train ended without finishing its training, see $log: look at the --distributed flags." 1
  exit # the script is not read on, as it may have changed meanwhile
}

begin_evaluation() { # AVERAGE BIN RUN: sets bin, run, average (or the AVERAGE of the environment), model, plain and device
  [ -d "$2" ] || fail "$2 is missing: name the folder that fairseq-preprocess wrote, OUT/bin of prepare.sh."
  [ -d "$3" ] || fail "$3 is missing: train the model first (train.sh)."
  bin=$(realpath "$2") run=$(realpath "$3") average=${AVERAGE:-$1}
  set_device
  lock "$run" "training or evaluating"
  trap 'stopped evaluating "$run"' ERR
  model=$run/checkpoint_best.pt
  [ "$average" = 0 ] || model=$run/average.pt
  # fairseq 0.12.2 alone: its fused encoder, which a plain Transformer gets, refuses sources padded on the left, as they are
  plain=()
  if python -c 'from importlib.metadata import version; version("fairseq")' 2>/dev/null; then
    plain=(--model-overrides "{'checkpoint_activations': True}")
  fi
}

evaluate_once() { # WHAT COMMAND...: ends the script if $run was evaluated this way, and otherwise averages the last checkpoints
  local updates saved
  [ -f "$run/scores.json" ] || rm -f "$run/evaluated"
  updates=$(grep -os '"num_updates": "[0-9]*' "$run/train.log" | tail -n 1 | tr -dc 0-9) || true
  record "$run/evaluated" "$run was evaluated" "remove $run/scores.json to evaluate it with these." \
    "# updates: ${updates:-unknown}, averaged: $average, $1"$'\n'"$2" "${@:3}"
  if [ -f "$run/scores.json" ]; then
    echo "$run: already evaluated"
    exit
  fi
  if [ "$average" = 0 ]; then
    [ -f "$model" ] || fail "$model is missing: train the model first (train.sh)."
    return
  fi
  saved=$(find "$run" -maxdepth 1 -regex '.*/checkpoint\(_[0-9]+_\)?[0-9]+\.pt' | wc -l)
  [ "$saved" -ge "$average" ] ||
    fail "$run has $saved saved checkpoints, fewer than the $average to be averaged: set AVERAGE to $saved or less."
  python -m linformer_fairseq.average --folder "$run" --last "$average" --output "$model" || exit
}

logged() { # NAME COMMAND...: runs a command of fairseq, whose output is kept in $run/NAME.log
  "${@:2}" 2>&1 | tee "$run/$1.log" || stopped "$2" "$run" "$run/$1.log"
}

validate() { # WHAT COMMAND...: evaluates $run with fairseq-validate
  evaluate_once "$@"
  logged validate "${@:2}"
}

collect_translations() { # [SED SCRIPT [WAY]]: writes $run/test$2.$tgt, detokenised, in the order of the test set and of
  # $reference, from $run/generate$2.log
  local found wanted to=$run/test${2:-}.$tgt
  grep '^D-' "$run/generate${2:-}.log" | sort -V | cut -f 3 | sed "${1:-}" >"$to.part"
  found=$(wc -l <"$to.part") wanted=$(wc -l <"$reference")
  [ "$found" = "$wanted" ] ||
    fail "fairseq-generate gave $found translations for the $wanted lines of $reference: name the reference of this test set." 1
  mv "$to.part" "$to"
}

score() { # NAME=KEY...: writes $run/scores.json, from what fairseq-validate has logged under these keys
  python - "$run/validate.log" "$average" "$@" >"$run/scores.json.part" <<'PYTHON'
import json, pathlib, re, sys
log, (average, *names) = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"), sys.argv[2:]
found = {name: re.findall(rf'"{key}": "([^"]+)"', log)[-1] for name, key in (own.split("=") for own in names)}
print(json.dumps({**{name: float(value) for name, value in found.items()}, "averaged": int(average)}, indent=2))
PYTHON
  mv "$run/scores.json.part" "$run/scores.json"
  cat "$run/scores.json"
}
