#!/usr/bin/env bash
# Makes fairseq's binary data, OUT/bin, of TEXT, a folder with {train,valid,test}.{en,de}, plain or .gz: a sentence a line,
# and an empty line between documents, at the same places in both languages. The subsets:
#   train   documents at several resolutions (Sun et al., 2022): parts of RESOLUTIONS sentences, and whole documents of up
#           to MAX_TOKENS subwords; longer ones are cut between sentences
#   short   parts of SHORT sentences, for a start on sentences: train.sh ... --train-subset short
#   valid   whole documents, cut likewise
#   test    whole documents, whose reference is OUT/reference.de: a document a line, a tab between its sentences
# The same command resumes where it was stopped.
# usage: prepare.sh OUT TEXT
#   prepare.sh data/documents TEXT
# variables: RESOLUTIONS='1 2 4 8 16 32', SHORT='1 2 4 8', MAX_TOKENS=2048, BPE_MERGES=10000, WORKERS (processes; all
# cores), SRC=en, TGT=de
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# = 2 ] || fail "usage: prepare.sh OUT TEXT"
[ -d "$2" ] || fail "$2 is missing: name a folder with {train,valid,test}.{$src,$tgt}, a sentence a line."
out=$(realpath -m "$1") text=$(realpath "$2") work=$out/prepared
merges=${BPE_MERGES:-10000} workers=${WORKERS:-$(env -u OMP_NUM_THREADS nproc)}
resolutions=${RESOLUTIONS-1 2 4 8 16 32} short=${SHORT:-1 2 4 8} limit=${MAX_TOKENS:-2048}
[[ "$resolutions $short" =~ ^[1-9\ ][0-9\ ]*$ ]] || fail "RESOLUTIONS and SHORT are numbers of sentences, as in '1 2 4 8'."
[[ $limit =~ ^[1-9][0-9]*$ ]] || fail "MAX_TOKENS is $limit: give a number of subwords."
lock "$out" preparing
trap 'stopped "$doing" "$out"' ERR

# 1. what it is made of: other text or settings are refused once OUT/bin is there, and take the place of unfinished work
doing="reading the text"
names=({train,valid,test}.{"$src","$tgt"}) files=()
for name in "${names[@]}"; do
  file=$text/$name
  [ -f "$file" ] || file=$file.gz
  [ -f "$file" ] || fail "$text/$name is missing, and so is $name.gz: every set needs both languages."
  files+=("$file")
done
settings=(
  prepare.sh --text "$text" --merges "$merges" --languages "$src-$tgt" --resolutions "$resolutions" --short "$short" \
    --max-tokens "$limit" --sha256 "$(cat "${files[@]}" | sha256sum | cut -c 1-16)"
)
if [ -f "$out/settings" ] && [ ! -d "$out/bin" ] && ! cmp --quiet "$out/settings" <(printed "${settings[@]}"); then
  rm -rf "$work" "$out/settings"
fi
record "$out/settings" "$out was made" "go on with those, or name another OUT." "${settings[@]}"
if [ -d "$out/bin" ]; then
  echo "$out/bin: already prepared"
  exit
fi
mkdir -p "$work"

new() { # FOLDER WORK: whether it is still to be made, as `to`, which is renamed when it is whole
  [ ! -d "$work/$1" ] || return 1
  doing=$2 to=$work/$1.part
  echo "prepare: $doing"
  rm -rf "$to"
  mkdir "$to" || stopped "$doing" "$out"
}
unlike() { # FILE FILE: the first line that is empty in one alone
  paste "$1" "$2" | awk -F '\t' '($1 == "") != ($2 == "") { print NR; exit }'
}

# 2. raw text: carriage returns, tabs and null bytes become spaces, a byte order mark goes, the last line ends
utf8=$(locale -a | awk 'tolower($0) ~ /utf-?8$/ && !found++')
[ -n "$utf8" ] || fail "There is no UTF-8 locale here (locale -a): install one, such as C.UTF-8."
if new raw "collecting the text"; then
  for file in "${files[@]}"; do
    name=${file##*/} name=${name%.gz}
    [[ $file != *.gz ]] || gzip --test "$file" 2>/dev/null ||
      fail "$file cannot be read, or is no whole gzip file: unpack or fetch it again."
    gzip -dcf "$file" | LC_ALL=C sed -e '1s/^\xef\xbb\xbf//' -e 's/\r$//' -e "\$a\\" | tr '\r\t\000' '   ' |
      LC_ALL=C sed 's/^ *$//' >"$to/$name"
    bad=$(LC_ALL=$utf8 grep -naxv -m 1 '.*' "$to/$name" | cut -d : -f 1) || true
    [ -z "$bad" ] || fail "$file is not UTF-8 text: line $bad cannot be read."
    bad=$(grep -nw -m 1 '<sep>' "$to/$name" | cut -d : -f 1) || true
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
    sacremoses --quiet --language "${name#*.}" --processes "$workers" normalize --remove-control-chars \
      tokenize --aggressive-dash-splits <"$work/raw/$name" >"$to/$name"
    bad=$(unlike "$work/raw/$name" "$to/$name")
    [ -z "$bad" ] || fail "line $bad of $name has nothing but control characters: remove it in both languages."
  done
  mv "$to" "$work/tok"
fi
if new bpe "learning and applying $merges BPE merges"; then
  cat "$work/tok/train.$src" "$work/tok/train.$tgt" | subword-nmt learn-bpe --symbols "$merges" --output "$to/codes"
  for name in "${names[@]}"; do
    subword-nmt apply-bpe --codes "$to/codes" --num-workers "$workers" <"$work/tok/$name" >"$to/$name"
  done
  mv "$to" "$work/bpe"
fi

# 4. examples, with <sep> between sentences
if new examples "making examples"; then
  python "$root/examples/documents/make_examples.py" "$work/bpe" "$to" "$src" "$tgt" "$limit" "$resolutions" "$short" || exit 2
  mv "$to" "$work/examples"
fi

# 5. fairseq's binary data; OUT/bin is moved last and says that all is done
doing="binarising"
rm -rf "$out/bin.part"
fairseq-preprocess --source-lang "$src" --target-lang "$tgt" --joined-dictionary --workers "$workers" --destdir "$out/bin.part" \
  --trainpref "$work/examples/train" --validpref "$work/examples/valid,$work/examples/short" --testpref "$work/examples/test"
for name in {train,short,valid,test}.{"$src","$tgt"}; do # its workers guess at which byte of a file their part begins
  grep -q "examples/$name: $(wc -l <"$work/examples/$name") sents" "$out/bin.part/preprocess.log" ||
    fail "fairseq-preprocess has lost lines of $name: run the same command again with WORKERS=1." 1
done
for file in "$out/bin.part"/valid1.*; do mv "$file" "${file/valid1/short}"; done
awk 'BEGIN { RS = ""; FS = "\n"; OFS = "\t" } { $1 = $1; print }' "$work/raw/test.$tgt" >"$out/reference.$tgt"
mv "$out/bin.part" "$out/bin"
echo "$out/bin: prepared"
