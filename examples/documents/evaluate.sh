#!/usr/bin/env bash
# Averages the last checkpoints of a model, measures its perplexity, translates the test set's documents with the average,
# each into as many sentences as it has, and writes RUN/scores.json (score.py) and RUN/test.de: one document per line, with
# tabs between its sentences.
# usage: evaluate.sh BIN RUN REFERENCE [FLAGS OF fairseq-generate]
#   evaluate.sh data/documents/bin data/documents/runs/full data/documents/reference.de
# variables: AVERAGE=5 (checkpoints; with 0, checkpoint_best.pt is used), DEVICE (common.sh), SRC, TGT
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -ge 3 ] || fail "usage: evaluate.sh BIN RUN REFERENCE [FLAGS OF fairseq-generate]"
[ -s "$3" ] || fail "$3 is missing or empty: name the reference, OUT/reference.$tgt of prepare.sh."
reference=$(realpath "$3")
begin_evaluation 5 "$1" "$2"
shift 3

command=(
  fairseq-generate "$bin" --user-dir "$plugin" --task document_translation --gen-subset test --source-lang "$src" \
    --target-lang "$tgt" --beam 4 --lenpen 1 --max-len-a 1 --max-len-b 50 --max-tokens 8192 \
    --required-batch-size-multiple 1 --tokenizer moses --remove-bpe "${plain[@]}" "${device[@]}" "$@" --path "$model"
)
evaluate_once "reference: $(cksum <"$reference")" "${command[@]}"

logged validate fairseq-validate "$bin" --user-dir "$plugin" --task document_translation --source-lang "$src" \
  --target-lang "$tgt" --valid-subset valid --batch-size 4 --required-batch-size-multiple 1 --distributed-world-size 1 \
  --log-format json "${plain[@]}" "${device[@]}" --path "$model"
logged generate "${command[@]}"
collect_translations 's/ *<sep> */\t/g'
python "$root/examples/documents/score.py" "$bin" "$run" "$reference" "$src" "$tgt" >"$run/scores.json.part"
mv "$run/scores.json.part" "$run/scores.json"
cat "$run/scores.json"
