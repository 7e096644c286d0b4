#!/usr/bin/env bash
# Makes fairseq's binary data, OUT/bin, from TEXT, a folder with {train,valid,test}.{en,de}, plain or .gz: one sentence per
# line, and an empty line between documents, at the same places in both languages. The subsets:
#   train   documents at several resolutions (Sun et al., 2022): parts of RESOLUTIONS sentences, and whole documents of up
#           to MAX_TOKENS subwords; longer ones are cut between sentences
#   short   parts of SHORT sentences, to start training on: train.sh ... --train-subset short
#   valid   whole documents, cut in the same way
#   test    whole documents, whose reference is OUT/reference.de: one document per line, with tabs between its sentences
# The same command resumes where it was stopped.
# usage: prepare.sh OUT TEXT
#   prepare.sh data/documents TEXT
# variables: RESOLUTIONS='1 2 4 8 16 32', SHORT='1 2 4 8', MAX_TOKENS=2048, BPE_MERGES=10000, WORKERS (processes;
# default: all cores), SRC=en, TGT=de
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# = 2 ] || fail "usage: prepare.sh OUT TEXT"
[ -d "$2" ] || fail "$2 is missing: name a folder with {train,valid,test}.{$src,$tgt}, a sentence a line."
out=$(realpath -m "$1") text=$(realpath "$2") work=$out/prepared
merges=${BPE_MERGES:-10000} workers=${WORKERS:-$(env -u OMP_NUM_THREADS nproc)}
resolutions=${RESOLUTIONS-1 2 4 8 16 32} short=${SHORT:-1 2 4 8} limit=${MAX_TOKENS:-2048}
[[ "$resolutions $short" =~ ^(\ *[1-9][0-9]*)+$ ]] || fail "RESOLUTIONS and SHORT are numbers of sentences, as in '1 2 4 8'."
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail "MAX_TOKENS is $limit: give a number of subwords."
lock "$out" preparing
set_utf8
trap 'stopped "$doing" "$out"' ERR

# 1. what it is made of: other text or settings are refused once OUT/bin is there, and take the place of unfinished work
doing="reading the text"
names=({train,valid,test}.{"$src","$tgt"})
find_text
prepare_once prepare.sh --text "$text" --merges "$merges" --languages "$src-$tgt" --resolutions "$resolutions" \
  --short "$short" --max-tokens "$limit" --sha256 "$(cat "${files[@]}" | sha256sum | cut -c 1-16)"

unlike() { # FILE FILE: the first line that is empty in one alone
  paste "$1" "$2" | awk -F '\t' '($1 == "") != ($2 == "") { print NR; exit }'
}

# 2. raw text
if new raw "collecting the text"; then
  for file in "${files[@]}"; do
    name=${file##*/} name=${name%.gz}
    read_text "$file" "$to/$name"
    LC_ALL=C sed -i 's/^ *$//' "$to/$name"
    bad=$(grep -nF -m 1 '<sep>' "$to/$name" | cut -d : -f 1) || true
    [ -z "$bad" ] || fail "line $bad of $file has <sep>, which is to stand between sentences: remove it."
    grep -q . "$to/$name" || fail "$file is empty: give it a sentence a line, and an empty line between documents."
  done
  for set in train valid test; do
    here=$(wc -l <"$to/$set.$src") there=$(wc -l <"$to/$set.$tgt")
    [ "$here" = "$there" ] ||
      fail "$set.$src has $here lines but $set.$tgt $there: line n of one must translate line n of the other."
    bad=$(unlike "$to/$set.$src" "$to/$set.$tgt")
    [ -z "$bad" ] || fail "line $bad of $set is empty in one language alone: documents must end at the same places in both."
  done
  grep -q '^$' "$to/train.$src" || fail "train.$src is a single document: put an empty line between two documents."
  mv "$to" "$work/raw"
fi

# 3. tokens as Moses makes them, without control characters, and subwords of both languages together; line by line
if new tok "tokenising"; then
  for name in "${names[@]}"; do
    in_parts moses "${name#*.}" "$work/raw/$name" "$to/$name"
    bad=$(unlike "$work/raw/$name" "$to/$name")
    [ -z "$bad" ] || fail "line $bad of $name has nothing but control characters: remove it in both languages."
  done
  mv "$to" "$work/tok"
fi
if new bpe "learning and applying $merges BPE merges"; then
  cat "$work/tok/train.$src" "$work/tok/train.$tgt" | subword-nmt learn-bpe --symbols "$merges" --output "$to/codes"
  for name in "${names[@]}"; do in_parts subwords "$to/codes" "$work/tok/$name" "$to/$name"; done
  mv "$to" "$work/bpe"
fi

# 4. examples, with <sep> between sentences
if new examples "making examples"; then
  python "$root/examples/documents/make_examples.py" "$work/bpe" "$to" "$src" "$tgt" "$limit" "$resolutions" "$short" || {
    case $? in 2) exit 2 ;; esac # it has said why
    stopped "$doing" "$out"
  }
  mv "$to" "$work/examples"
fi

# 5. fairseq's binary data; OUT/bin is moved last and says that all is done
doing="binarising"
rm -rf "$out/bin.part"
fairseq-preprocess --source-lang "$src" --target-lang "$tgt" --joined-dictionary --workers "$workers" --destdir "$out/bin.part" \
  --trainpref "$work/examples/train" --validpref "$work/examples/valid,$work/examples/short" --testpref "$work/examples/test"
for name in {train,short,valid,test}.{"$src","$tgt"}; do all_lines "$work/examples/$name" "$out/bin.part"; done
for file in "$out/bin.part"/valid1.*; do mv "$file" "$out/bin.part/short.${file##*/valid1.}"; done
awk 'BEGIN { RS = ""; FS = "\n"; OFS = "\t" } { $1 = $1; print }' "$work/raw/test.$tgt" >"$out/reference.$tgt"
mv "$out/bin.part" "$out/bin"
echo "$out/bin: prepared"
