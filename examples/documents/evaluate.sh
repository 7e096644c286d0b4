#!/usr/bin/env bash
# Averages the last checkpoints of a model, measures its perplexity, translates the test set's documents with the average,
# each into as many sentences as it has, and writes RUN/scores.json (score.py) and RUN/test.de: one document per line, with
# tabs between its sentences.
# usage: evaluate.sh BIN RUN REFERENCE [FLAGS OF fairseq-generate]
#   evaluate.sh data/documents/bin data/documents/runs/full data/documents/reference.de
# variables: AVERAGE=5 (checkpoints; with 0, checkpoint_best.pt is used), DEVICE (common.sh), SRC, TGT, and
# PARTS='1024 2048': documents are translated once in parts of up to 1,024 tokens and once of up to 2,048, as RUN/test-1024.de
# and RUN/test-2048.de, and scores have these numbers before their names; not where the flags have --part-tokens
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -ge 3 ] || fail "usage: evaluate.sh BIN RUN REFERENCE [FLAGS OF fairseq-generate]"
[ -s "$3" ] || fail "$3 is missing or empty: name the reference, OUT/reference.$tgt of prepare.sh."
reference=$(realpath "$3")
begin_evaluation 5 "$1" "$2"
shift 3
[[ ${PARTS:-} =~ ^(\ *[1-9][0-9]*)*$ ]] || fail "PARTS is $PARTS: give numbers of tokens, as in '1024 2048'."
read -ra parts <<<"${PARTS:-}"
[[ " $*" != *" --part-tokens"* ]] || parts=()

command=(
  fairseq-generate "$bin" --user-dir "$plugin" --task document_translation --gen-subset test --source-lang "$src" \
    --target-lang "$tgt" --beam 4 --lenpen 1 --max-len-a 1 --max-len-b 50 --max-tokens 8192 \
    --required-batch-size-multiple 1 --tokenizer moses --remove-bpe "${plain[@]}" "${device[@]}" "$@" --path "$model"
)
evaluate_once "reference: $(cksum <"$reference")${parts:+, parts: ${parts[*]}}" "${command[@]}"

logged validate fairseq-validate "$bin" --user-dir "$plugin" --task document_translation --source-lang "$src" \
  --target-lang "$tgt" --valid-subset valid --batch-size 4 --required-batch-size-multiple 1 --distributed-world-size 1 \
  --log-format json "${plain[@]}" "${device[@]}" --path "$model"
translate() { # [WAY FLAGS]
  logged "generate${1:-}" "${command[@]}" "${@:2}"
  collect_translations 's/ *<sep> */\t/g' "${1:-}"
}
[ -n "${parts:-}" ] || translate
for part in "${parts[@]}"; do translate "-$part" --part-tokens "$part"; done
python "$root/examples/documents/score.py" "$bin" "$run" "$reference" "$src" "$tgt" "${parts[@]}" \
  >"$run/scores.json.part"
mv "$run/scores.json.part" "$run/scores.json"
cat "$run/scores.json"
