#!/usr/bin/env python3
"""Writes {train,valid,test}.txt of one folder into another as {train,valid,test}.npz and dict.txt, as the task reads them.

A line is `TYPE TIME`, and an empty line stands between sequences. TYPE is any word, TIME is above 0 and rises.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary


def read(path: Path, types: Dictionary, learns: bool = False) -> dict[str, Any]:
    """Returns the types of all events, the waiting times before them, and the sizes of the sequences.

    Args:
        types: those that are known.
        learns: whether new types are added to them, and not refused.

    Raises:
        ValueError: a file that is missing or empty, a line that is no event, an unknown type, a time that falls.
    """
    if not path.is_file():
        raise ValueError(f"{path} is missing: give train.txt, valid.txt and test.txt")
    found, waits, sizes, last = [], [], [0], 0.0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            last = 0.0
            sizes += [0] if sizes[-1] else []
            continue
        try:
            kind, text = line.split()
            time = float(text)
        except ValueError:
            raise ValueError(f"line {number} of {path} is {line!r}: give a type and a time") from None
        if not last < time < float("inf"):
            raise ValueError(f"line {number} of {path}: {text} is not after {last}, so give times that rise from above 0")
        index = types.add_symbol(kind) if learns else types.index(kind)
        if index < types.nspecial:
            raise ValueError(f"line {number} of {path}: type {kind} is unknown, so add such events to train.txt")
        found.append(index)
        waits.append(time - last)
        sizes[-1] += 1
        last = time
    if not found:
        raise ValueError(f"{path} is empty: give it events")
    return {"types": np.array(found), "waits": np.array(waits), "sizes": np.array([size for size in sizes if size])}


def main() -> None:
    """Reads the command line and writes what the task reads."""
    text, to = map(Path, sys.argv[1:])
    types = Dictionary()
    try:
        found = {split: read(text / f"{split}.txt", types, split == "train") for split in ("train", "valid", "test")}
    except ValueError as error:
        sys.exit(f"error: {error}")
    to.mkdir(parents=True, exist_ok=True)
    for split, arrays in found.items():
        np.savez(to / f"{split}.npz", **arrays)
    types.save(str(to / "dict.txt"))


if __name__ == "__main__":
    main()
