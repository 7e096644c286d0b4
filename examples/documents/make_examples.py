#!/usr/bin/env python3
"""Makes the lines that fairseq-preprocess reads, each a document or part of one, from sentences cut into subwords.

Reads FOLDER/{train,valid,test}.{SRC,TGT}, one sentence per line and an empty line between documents. Writes to OUT:
`train`, documents at several resolutions (Sun et al., 2022): in parts of some sentences, and as whole as they may be;
`short`, only in parts of few sentences; `valid`, as whole as they may be; `test`, whole.
"""

import sys
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from pathlib import Path

Pair = tuple[str, str]
SEPARATOR = " <sep> "


def length(pair: Pair) -> int:
    """Returns how many tokens a sentence takes on its longer side, with the separator or the end after it."""
    return 1 + max(len(side.split()) for side in pair)


def cut(document: Sequence[Pair], limit: int, most: int | None = None) -> Iterator[Pair]:
    """Yields the lines of the parts of a document, each as long as it can be.

    Args:
        limit: tokens of a part.
        most: sentences of a part; None for any number.
    """
    part: list[Pair] = []
    for pair in document:
        if part and (len(part) == most or sum(map(length, part)) + length(pair) > limit):
            yield joined(part)
            part = []
        part.append(pair)
    yield joined(part)


def joined(part: Sequence[Pair]) -> Pair:
    source, target = (SEPARATOR.join(sentences) for sentences in zip(*part, strict=True))
    return source, target


def read(folder: Path, split: str, langs: Sequence[str], limit: int) -> list[list[Pair]]:
    """Returns the documents of a set; ends with one sentence and status 2 where one exceeds the limit."""
    sides = [(folder / f"{split}.{lang}").read_text(encoding="utf-8").split("\n") for lang in langs]
    lines = list(zip(*sides, strict=True))
    for number, pair in enumerate(lines, 1):
        if length(pair) > limit:
            sys.stderr.write(
                f"error: line {number} of {split} has {length(pair)} subwords, its end included, more than the "
                f"{limit} of an example: split it up, or raise MAX_TOKENS.\n"
            )
            sys.exit(2)
    return [list(group) for full, group in groupby(lines, key=all) if full]


def examples(documents: Sequence[Sequence[Pair]], limit: int, resolutions: Sequence[int | None]) -> list[Pair]:
    """Returns the lines of documents at every resolution; no part of a document stands there twice."""
    ways = ((cut(document, limit, most) for most in resolutions) for document in documents)
    return [line for own in ways for line in dict.fromkeys(chain.from_iterable(own))]


def main() -> None:
    """Reads the command line: FOLDER OUT SRC TGT LIMIT RESOLUTIONS SHORT, the last two as lists of numbers."""
    folder, out, limit, langs = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[5]), sys.argv[3:5]
    resolutions, short = ([int(number) for number in numbers.split()] for numbers in sys.argv[6:8])
    train, valid, test = (read(folder, split, langs, limit) for split in ("train", "valid", "test"))
    lines = {
        "train": examples(train, limit, [*resolutions, None]),
        "short": examples(train, limit, short),
        "valid": examples(valid, limit, [None]),
        "test": [joined(document) for document in test],
    }
    for name, own in lines.items():
        for lang, side in zip(langs, zip(*own, strict=True), strict=True):
            (out / f"{name}.{lang}").write_text("".join(f"{line}\n" for line in side), encoding="utf-8")
        print(f"prepare: {len(own):,} lines of {name}")


if __name__ == "__main__":
    main()
