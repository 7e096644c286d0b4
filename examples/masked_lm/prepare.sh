#!/usr/bin/env bash
# Makes fairseq's binary data, OUT/bin, from TEXT, a folder with two or more *.txt or *.txt.gz: one paragraph per line, an
# empty line between documents. OUT/bin also has the subword model, sentencepiece.model. The same command resumes.
# usage: prepare.sh OUT TEXT
#   prepare.sh results/masked_lm BOOKS
# variables: VALID, TEST (files to validate and to test on, named without .txt and separated by spaces; default: the last
# file by name, and none), VOCABULARY=8000 (subwords), WORKERS (processes; default: all cores)
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# = 2 ] || fail "usage: prepare.sh OUT TEXT"
[ -d "$2" ] || fail "$2 is missing: name a folder with *.txt or *.txt.gz, a paragraph a line."
out=$(realpath -m "$1") text=$(realpath "$2") work=$out/prepared
vocabulary=${VOCABULARY:-8000} workers=${WORKERS:-$(env -u OMP_NUM_THREADS nproc)}
lock "$out" preparing
set_utf8
trap 'stopped "$doing" "$out"' ERR

# 1. which file belongs to which set; other text or settings are refused once OUT/bin is there
doing="reading the text"
declare -A file=() set_of=()
names=()
for path in "$text"/*.txt "$text"/*.txt.gz; do
  [ -f "$path" ] || continue
  name=$(basename "${path%.gz}" .txt)
  [ -z "${file[$name]:-}" ] || fail "$text has $name.txt both plain and gzipped: keep one of them."
  file[$name]=$path set_of[$name]=train
  names+=("$name")
done
[ ${#names[@]} -ge 2 ] || fail "$text has ${#names[@]} files *.txt or *.txt.gz: give it some to train on and one to validate on."
mapfile -t names < <(printf '%s\n' "${names[@]}" | LC_ALL=C sort)
read -ra valid <<<"${VALID:-${names[-1]}}"
read -ra test <<<"${TEST:-}"
for name in "${valid[@]}" "${test[@]}"; do
  [ -n "${file[$name]:-}" ] || fail "$text has no $name.txt or $name.txt.gz: name files of it in VALID and TEST."
done
for name in "${valid[@]}"; do set_of[$name]=valid; done
for name in "${test[@]}"; do set_of[$name]="test"; done
sets=(train valid ${TEST:+test})
for set in "${sets[@]}"; do
  [[ " ${set_of[*]} " = *" $set "* ]] ||
    fail "VALID and TEST leave none of the ${#names[@]} files of $text for the $set set: name fewer, or add files."
done
prepare_once prepare.sh --text "$text" --vocabulary "$vocabulary" --valid "${valid[*]}" --test "${test[*]}" \
  --sha256 "$(cat "${file[@]}" | sha256sum | cut -c 1-16)"

# 2. plain text: single empty lines between documents, none elsewhere
if new text "collecting the text"; then
  for name in "${names[@]}"; do
    read_text "${file[$name]}" "$to/file"
    awk 'NF { if (gap) print ""; gap = 0; gsub(/^ +| +$/, ""); print; found = 1; next } found { gap = 1 }' "$to/file" >"$to/part"
    [ ! -s "$to/part" ] || [ ! -s "$to/${set_of[$name]}" ] || echo >>"$to/${set_of[$name]}"
    cat "$to/part" >>"$to/${set_of[$name]}"
  done
  for set in "${sets[@]}"; do [ -s "$to/$set" ] || fail "The $set set of $text is empty: give it text, a paragraph a line."; done
  rm "$to"/{file,part}
  mv "$to" "$work/text"
fi

# 3. subwords
if new pieces "learning and applying $vocabulary subwords"; then
  python -c 'import sys, sentencepiece
sentencepiece.SentencePieceTrainer.train(
    input=sys.argv[1], model_prefix=sys.argv[2], vocab_size=int(sys.argv[3]), num_threads=int(sys.argv[4]),
    model_type="bpe", character_coverage=1.0, train_extremely_large_corpus=True)' \
    "$work/text/train" "$to/sentencepiece" "$vocabulary" "$workers" 2>"$out/sentencepiece.log" ||
    fail "sentencepiece finds no $vocabulary subwords ($(tail -n 1 "$out/sentencepiece.log")): name another VOCABULARY."
  for set in "${sets[@]}"; do in_parts pieces "$to/sentencepiece.model" "$work/text/$set" "$to/$set"; done
  mv "$to" "$work/pieces"
fi

# 4. fairseq's binary data; OUT/bin is moved last and says that all is done
doing="binarising"
rm -rf "$out/bin.part"
fairseq-preprocess --only-source --workers "$workers" --destdir "$out/bin.part" --trainpref "$work/pieces/train" \
  --validpref "$work/pieces/valid" ${TEST:+--testpref "$work/pieces/test"}
for set in "${sets[@]}"; do all_lines "$work/pieces/$set" "$out/bin.part"; done
cp "$work/pieces/sentencepiece.model" "$out/bin.part"
mv "$out/bin.part" "$out/bin"
echo "$out/bin: prepared"
