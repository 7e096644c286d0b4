#!/usr/bin/env bash
# Averages the last checkpoints of a model, measures its perplexity, translates the test set with the average, and writes
# RUN/scores.json: perplexity, detokenised sacreBLEU and chrF, BLEU with compounds split, sentences and tokens per second.
# usage: evaluate.sh BIN RUN REFERENCE [FLAGS OF fairseq-generate]
#   evaluate.sh data/wmt14/bin data/wmt14/runs/linformer-k64 data/wmt14/reference.de
# variables: AVERAGE=5 (checkpoints; with 0, checkpoint_best.pt is used), DEVICE (common.sh), SRC, TGT
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# -ge 3 ] || fail "usage: evaluate.sh BIN RUN REFERENCE [FLAGS OF fairseq-generate]"
[ -s "$3" ] || fail "$3 is missing or empty: name the reference, plain text, OUT/reference.$tgt of prepare.sh."
reference=$(realpath "$3")
begin_evaluation 5 "$1" "$2"
shift 3

command=(
  fairseq-generate "$bin" --user-dir "$plugin" --gen-subset test --source-lang "$src" --target-lang "$tgt" \
    --beam 4 --lenpen 0.6 --max-len-a 1 --max-len-b 50 --max-tokens 4096 --required-batch-size-multiple 1 \
    --tokenizer moses --remove-bpe "${plain[@]}" "${device[@]}" "$@" --path "$model"
)
evaluate_once "reference: $(cksum <"$reference")" "${command[@]}"

logged validate fairseq-validate "$bin" --user-dir "$plugin" --task translation --source-lang "$src" --target-lang "$tgt" \
  --valid-subset valid --max-tokens 4096 --required-batch-size-multiple 1 --distributed-world-size 1 \
  --log-format json "${plain[@]}" "${device[@]}" --path "$model"
logged generate "${command[@]}"
collect_translations

# BLEU with compounds split, as Vaswani et al. (2017) report it, after tensor2tensor's get_ende_bleu.sh
compounds() { # the Moses tokens of plain text, cut at hyphens
  sacremoses --quiet --language "$tgt" tokenize | sed -E 's/(\S)-(\S)/\1 ##AT##-##AT## \2/g'
}
compounds <"$reference" >"$run/reference.split"
compounds <"$run/test.$tgt" >"$run/test.split"

sacrebleu "$reference" --input "$run/test.$tgt" --language-pair "$src-$tgt" --metrics bleu chrf --width 2 >"$run/bleu.json"
sacrebleu "$run/reference.split" --input "$run/test.split" --tokenize none --force --smooth-method none --width 2 \
  >"$run/split.json"

python - "$run" "$average" >"$run/scores.json.part" <<'PYTHON'
import json, pathlib, re, sys
run, average = pathlib.Path(sys.argv[1]), int(sys.argv[2])
found = [*json.loads((run / "bleu.json").read_text()), json.loads((run / "split.json").read_text())]
scores = dict(zip(("BLEU", "chrF", "BLEU, compounds split"), (metric["score"] for metric in found)))
scores["perplexity"] = float(re.findall(r'"valid_ppl": "([^"]+)"', (run / "validate.log").read_text())[-1])
pattern = r"Translated .* in ([\d.]+)s \(([\d.]+) sentences/s, ([\d.]+) tokens/s\)"
times = re.findall(pattern, (run / "generate.log").read_text())[-1]
scores |= dict(zip(("translation, s", "sentences/s", "tokens/s"), map(float, times)))
scores |= {"averaged": average, "signatures": [metric["signature"] for metric in found]}
print(json.dumps(scores, indent=2))
PYTHON
rm "$run"/{reference.split,test.split,bleu.json,split.json}
mv "$run/scores.json.part" "$run/scores.json"
cat "$run/scores.json"
