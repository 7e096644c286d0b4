#!/usr/bin/env bash
# Makes fairseq's binary data, OUT/bin, and the plain reference, OUT/reference.de, from WMT14 English-German, or from TEXT, a
# folder with {train,valid,test}.{en,de}, plain or .gz. The same command resumes where it was stopped.
# usage: prepare.sh OUT [TEXT]
#   prepare.sh data/wmt14
# variables: BPE_MERGES=40000, WORKERS (processes; default: all cores), SRC=en, TGT=de, WMT_BASE_URL=https://www.statmt.org
# (or a mirror with the same paths, file:// too)
set -Eeuo pipefail
# shellcheck source-path=SCRIPTDIR source=../common.sh
source "$(dirname "${BASH_SOURCE[0]}")/../common.sh"
[ $# = 1 ] || [ $# = 2 ] || fail "usage: prepare.sh OUT [TEXT]"
[ $# = 1 ] || [ -d "$2" ] || fail "$2 is missing: name a folder with {train,valid,test}.{$src,$tgt}, a sentence a line."
out=$(realpath -m "$1") text=${2:+$(realpath "$2")} work=$out/prepared
merges=${BPE_MERGES:-40000} workers=${WORKERS:-$(env -u OMP_NUM_THREADS nproc)} official=https://www.statmt.org
server=${WMT_BASE_URL:-$official}
lock "$out" preparing
trap 'stopped "$doing" "$out"' ERR

# 1. what it is made of: other text or settings are refused once OUT/bin is there, and take the place of unfinished work
doing="reading the text"
if [ -n "$text" ]; then
  find_text
elif [ "$src-$tgt" != en-de ] && [ "$src-$tgt" != de-en ]; then
  fail "WMT14 is prepared for en and de, not $src and $tgt: name a TEXT."
fi
settings=(prepare.sh --text "${text:-WMT14}" --merges "$merges" --languages "$src-$tgt")
[ -z "$text" ] || settings+=(--sha256 "$(cat "${files[@]}" | sha256sum | cut -c 1-16)")
prepare_once "${settings[@]}"

fetch() { # PATH SHA256: an archive of the server to OUT/orig; what the server itself does not publish is recorded
  local file=$out/orig/${1##*/} recorded wanted
  if [ ! -f "$file" ]; then
    curl --fail --location --retry 5 --continue-at - --output "$file.part" "$server/$1" || {
      case $? in
        23) stopped "writing $file.part" "$out" ;;
        33 | 36) rm "$file.part" ;; # cannot be resumed
      esac
      fail "$server/$1 cannot be fetched: run the same command again, or name a mirror (WMT_BASE_URL)."
    }
    if ! gzip --test "$file.part" 2>/dev/null; then
      rm "$file.part"
      fail "$server/$1 is not a whole archive (a web page, cut short or damaged): run the same command again, or name a mirror (WMT_BASE_URL)."
    fi
    rm -f "$file.sha256"
    mv "$file.part" "$file"
  fi
  recorded=$(sha256sum <"$file" | cut -d ' ' -f 1)
  [ -f "$file.sha256" ] || echo "$recorded" >"$file.sha256"
  wanted=$(cat "$file.sha256")
  if [ "$server" = "$official" ] && [ "$2" != - ]; then wanted=$2; fi
  [ "$recorded" = "$wanted" ] ||
    fail "$file does not match its published or recorded SHA-256: remove it and run the same command again."
}

set_utf8
same_lines() { # FILE: refused unless both languages have as many lines
  local here there
  here=$(wc -l <"$1.$src") there=$(wc -l <"$1.$tgt")
  [ "$here" = "$there" ] ||
    fail "${1##*/}.$src has $here lines but ${1##*/}.$tgt $there: line n of one must translate line n of the other."
}

# 2. raw text, one sentence per line
if [ -z "$text" ] && [ ! -d "$work/raw" ]; then
  doing="fetching the archives"
  mkdir -p "$out/orig"
  # digests as TensorFlow Datasets publishes them (url_checksums/wmt14_translate.txt); it has none for the last two
  fetch wmt13/training-parallel-europarl-v7.tgz 0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7
  fetch wmt13/training-parallel-commoncrawl.tgz c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5
  fetch wmt14/training-parallel-nc-v9.tgz cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485
  fetch wmt14/dev.tgz -
  fetch wmt14/test-full.tgz - # newstest2014 with all 3,003 lines
fi
if new raw "collecting the text"; then
  if [ -z "$text" ]; then
    mkdir "$to/archives"
    orig=$out/orig unpacked=$to/unpacked
    mkdir "$unpacked"
    for lang in "$src" "$tgt"; do
      tar -xzf "$orig/training-parallel-europarl-v7.tgz" -C "$unpacked" "training/europarl-v7.de-en.$lang"
      tar -xzf "$orig/training-parallel-commoncrawl.tgz" -C "$unpacked" "commoncrawl.de-en.$lang"
      tar -xzf "$orig/training-parallel-nc-v9.tgz" -C "$unpacked" "training/news-commentary-v9.de-en.$lang"
      tar -xzf "$orig/dev.tgz" -C "$unpacked" "dev/newstest2013.$lang"
      cat "$unpacked"/{training/europarl-v7,commoncrawl,training/news-commentary-v9}.de-en."$lang" | plain >"$to/all.$lang"
      plain <"$unpacked/dev/newstest2013.$lang" >"$to/valid.$lang"
    done
    for side in "src.$src" "ref.$tgt"; do
      tar -xzf "$orig/test-full.tgz" -O "test-full/newstest2014-deen-$side.sgm" >"$unpacked/test.sgm"
      sed -n 's/^<seg [^>]*>\(.*\)<\/seg>.*/\1/p' "$unpacked/test.sgm" | plain >"$to/test.${side#*.}"
    done
    same_lines "$to/all"
    paste "$to/all.$src" "$to/all.$tgt" | LC_ALL=$utf8 grep -ax '.*' >"$to/pairs"
    cut -f 1 "$to/pairs" >"$to/train.$src"
    cut -f 2 "$to/pairs" >"$to/train.$tgt"
    echo "prepare: left out $(($(wc -l <"$to/all.$src") - $(wc -l <"$to/pairs"))) pairs that are not UTF-8"
    rm -r "$unpacked" "$to"/{all.*,pairs}
  else
    for file in "${files[@]}"; do
      name=${file##*/}
      read_text "$file" "$to/${name%.gz}"
    done
  fi
  for set in train valid test; do
    same_lines "$to/$set"
    grep -q '[^ ]' "$to/$set.$src" || fail "${text:-WMT14}/$set.$src is empty: give it a sentence a line."
  done
  mv "$to" "$work/raw"
fi

# 3. tokens as Moses makes them, without control characters
if new tok "tokenising"; then
  for name in {train,valid,test}.{"$src","$tgt"}; do in_parts moses "${name#*.}" "$work/raw/$name" "$to/$name"; done
  mv "$to" "$work/tok"
fi

# 4. subwords of both languages together; training pairs of 1 to 250 of them, and at most 1.5 to 1 (Moses' clean-corpus-n)
if new bpe "learning and applying $merges BPE merges"; then
  cat "$work/tok/train.$src" "$work/tok/train.$tgt" >"$to/both"
  subword-nmt learn-bpe --symbols "$merges" --input "$to/both" --output "$to/codes"
  for name in {valid,test}.{"$src","$tgt"}; do in_parts subwords "$to/codes" "$work/tok/$name" "$to/$name"; done
  for lang in "$src" "$tgt"; do in_parts subwords "$to/codes" "$work/tok/train.$lang" "$to/all.$lang"; done
  paste "$to/all.$src" "$to/all.$tgt" | awk -F '\t' '
    { a = split($1, _, " "); b = split($2, _, " ") }
    a && b && a <= 250 && b <= 250 && a <= 1.5 * b && b <= 1.5 * a' >"$to/kept"
  [ -s "$to/kept" ] || fail "No training pair has 1 to 250 subwords a side and a length ratio of at most 1.5: look at $work/tok."
  cut -f 1 "$to/kept" >"$to/train.$src"
  cut -f 2 "$to/kept" >"$to/train.$tgt"
  left_out=$(($(wc -l <"$to/all.$src") - $(wc -l <"$to/kept")))
  echo "prepare: left out $left_out pairs that are empty, too long or too unequal"
  rm "$to"/{both,all.*,kept}
  mv "$to" "$work/bpe"
fi

# 5. fairseq's binary data; OUT/bin is moved last and says that all is done
doing="binarising"
rm -rf "$out/bin.part"
fairseq-preprocess --source-lang "$src" --target-lang "$tgt" --joined-dictionary --workers "$workers" --destdir "$out/bin.part" \
  --trainpref "$work/bpe/train" --validpref "$work/bpe/valid" --testpref "$work/bpe/test"
for name in {train,valid,test}.{"$src","$tgt"}; do all_lines "$work/bpe/$name" "$out/bin.part"; done
cp "$work/raw/test.$tgt" "$out/reference.$tgt"
mv "$out/bin.part" "$out/bin"
echo "$out/bin: prepared"
