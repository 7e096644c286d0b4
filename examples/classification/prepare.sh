#!/usr/bin/env bash
# Makes fairseq's binary data, OUT/bin, from TEXT, a folder with train, dev and test as .tsv or .tsv.gz: tab-separated,
# without quoting, with a header that names a column `label` and a column `text` or `sentence`. The same command resumes.
# usage: PRETRAINED=OUT_OF_MASKED_LM prepare.sh OUT TEXT
#   PRETRAINED=results/masked_lm prepare.sh results/polarity SENTENCE_POLARITY
# variables: PRETRAINED (the OUT of masked_lm/prepare.sh whose subwords are used), WORKERS (processes; default: all cores)
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# = 2 ] || fail "usage: PRETRAINED=OUT_OF_MASKED_LM prepare.sh OUT TEXT"
[ -f "${PRETRAINED:-}/bin/sentencepiece.model" ] ||
  fail "PRETRAINED is '${PRETRAINED:-}', which has no bin/sentencepiece.model: name the OUT of masked_lm/prepare.sh."
[ -d "$2" ] || fail "$2 is missing: name a folder with train, dev and test as .tsv or .tsv.gz."
out=$(realpath -m "$1") text=$(realpath "$2") work=$out/prepared subwords=$(realpath "$PRETRAINED")/bin
workers=${WORKERS:-$(env -u OMP_NUM_THREADS nproc)}
lock "$out" preparing
set_utf8
trap 'stopped "$doing" "$out"' ERR

# 1. other texts or subwords are refused once OUT/bin is there
doing="reading the text"
declare -A file=([train]=train [valid]=dev [test]=test) # fairseq's names of the sets, and those of their files
for set in "${!file[@]}"; do
  path=$text/${file[$set]}.tsv
  [ -f "$path" ] || path=$path.gz
  [ -f "$path" ] || fail "$text has no ${file[$set]}.tsv or ${file[$set]}.tsv.gz: give it train, dev and test."
  file[$set]=$path
done
prepare_once prepare.sh --text "$text" --pretrained "$subwords" \
  --sha256 "$(cat "${file[@]}" "$subwords"/{sentencepiece.model,dict.txt} | sha256sum | cut -c 1-16)"

# 2. one label and one text per line
if new text "collecting the texts"; then
  mkdir "$to"/{label,input0}
  for set in train valid test; do
    read_text "${file[$set]}" "$to/table" '\r\000'
    wrong=$(file=${file[$set]} labels=$to/label/$set texts=$to/input0/$set awk -F '\t' '
      function refuse(what) { print what; wrong = 1; exit }
      BEGIN { file = ENVIRON["file"]; labels = ENVIRON["labels"]; texts = ENVIRON["texts"]; printf "" >texts }
      NR == 1 {
        for (i = 1; i <= NF; i++) if ($i == "label") label = i; else if ($i == "text" || $i == "sentence") { text = i; n++ }
        if (!label || n != 1)
          refuse("The first line of " file " names no column label, or not one column text or sentence: rename its columns, or add this line.")
        columns = NF
        next
      }
      NF != columns { refuse("Line " NR " of " file " has " NF " columns, but its header has " columns ": put tabs between columns and nowhere else.") }
      $label !~ /^[^ ]+$/ { refuse("Line " NR " of " file " has the label \"" $label "\": a label is one word.") }
      $text !~ /[^ ]/ { refuse("Line " NR " of " file " has an empty text: fill it in, or remove the line.") }
      { print $label >labels; print $text >texts }
      END { if (!wrong && NR < 2) refuse(file " has no texts below its header: give it some.") }' "$to/table")
    [ -z "$wrong" ] || fail "$wrong"
    LC_ALL=C sort -u "$to/label/train" >"$to/labels"
    [ "$(wc -l <"$to/labels")" -gt 1 ] || fail "All texts of ${file[train]} have one label: give it two or more."
    other=$(grep -vxnF -m 1 -f "$to/labels" "$to/label/$set") || true
    [ -z "$other" ] ||
      fail "Line $((${other%%:*} + 1)) of ${file[$set]} has the label ${other#*:}, which no training text has: correct it."
  done
  sed 's/$/ 1/' "$to/labels" >"$to/label/dict.txt"
  rm "$to"/{table,labels}
  mv "$to" "$work/text"
fi

# 3. the subwords of the pretraining
if new pieces "cutting the texts into subwords"; then
  for set in train valid test; do in_parts pieces "$subwords/sentencepiece.model" "$work/text/input0/$set" "$to/$set"; done
  mv "$to" "$work/pieces"
fi

# 4. fairseq's binary data; OUT/bin is moved last and says that all is done
doing="binarising"
rm -rf "$out/bin.part"
binarise() { # NAME FOLDER DICTIONARY
  fairseq-preprocess --only-source --workers "$workers" --destdir "$out/bin.part/$1" --srcdict "$3" \
    --trainpref "$2/train" --validpref "$2/valid" --testpref "$2/test"
  for set in train valid test; do all_lines "$2/$set" "$out/bin.part/$1"; done
}
binarise input0 "$work/pieces" "$subwords/dict.txt"
binarise label "$work/text/label" "$work/text/label/dict.txt"
mv "$out/bin.part" "$out/bin"
echo "$out/bin: prepared"
