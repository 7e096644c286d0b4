# shellcheck shell=bash disable=SC2034  # most variables are used by the scripts that source this one
# What the recipes share; sourced, not run. The environment whose commands come first in PATH is used, and the project's
# .venv where there is no fairseq-train at all. DEVICE: --fp16 on a machine with a GPU, else --cpu, or any other flags of
# fairseq for all its commands (--amp, '--cpu --num-workers 0').
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
plugin=$root/linformer_fairseq
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
  [ "$(df -Pk "$2" | awk 'NR == 2 { print $4 }')" -gt 2048 ] || why=" because the disk of $2 is full"
  fail "$1 failed$why, see ${3:-the lines above}: fix that and run the same command again; it resumes from there." 1
}

printed() { # COMMAND...: a flag and its values on each line, as one can type them
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
