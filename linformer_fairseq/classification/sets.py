"""The labelled texts: sets of tab-separated files, read and checked."""

import csv
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import texts

TRAIN, DEV, TEST = "train", "dev", "test"
SPLITS = (TRAIN, DEV, TEST)
LABEL = "label"
TEXTS = ("text", "sentence")
"""What the column of texts may be called."""
_ENDINGS = (".tsv", ".tsv.gz")


class Example(NamedTuple):
    """A line of a set."""

    label: str
    text: str


@dataclass(frozen=True)
class TextSet:
    """Labelled texts to train on, to choose a checkpoint with, and to test."""

    name: str
    paths: dict[str, Path]
    """The file of each split."""
    splits: dict[str, list[Example]]
    """In the order of the files, whose first line is the header."""

    @cached_property
    def labels(self) -> list[str]:
        """Those of the training texts, in alphabetical order; a class has the number of its place."""
        return sorted({example.label for example in self.splits[TRAIN]})

    def classes(self, split: str) -> list[int]:
        """Returns the class of every text of a split."""
        numbers = {label: number for number, label in enumerate(self.labels)}
        return [numbers[example.label] for example in self.splits[split]]

    def digest(self, split: str) -> str:
        """Returns the SHA-256 digest of the labels and texts of a split, whatever other columns its file has."""
        return hashlib.sha256(json.dumps(self.splits[split]).encode()).hexdigest()


def read_sets(data: Path, names: Sequence[str]) -> list[TextSet]:
    """Returns the sets in a folder, which may be a set itself.

    Args:
        names: those wanted; none for all.

    Raises:
        UserError: no such folder or set, or a set that cannot be classified.
    """
    if not data.is_dir():
        raise UserError(
            f"--data {data} is not a folder: name one with train, dev and test as .tsv, or one of such sets."
        )
    if _find(data, TRAIN):
        found = {data.resolve().name: data}
    else:
        found = {path.name: path for path in sorted(data.iterdir()) if path.is_dir() and not path.name.startswith(".")}
    if not found:
        raise UserError(f"{data} has neither train.tsv nor folders with one: name a folder of labelled texts.")
    for name in names:
        if name not in found:
            raise UserError(f"--sets {name} is not in {data}: choose from {', '.join(found)}.")
    return [_read_set(name, found[name]) for name in names or found]


def _find(folder: Path, split: str) -> Path | None:
    return next((path for ending in _ENDINGS if (path := folder / f"{split}{ending}").is_file()), None)


def _read_set(name: str, folder: Path) -> TextSet:
    paths = {}
    for split in SPLITS:
        path = _find(folder, split)
        if path is None:
            raise UserError(
                f"{folder} has no {split}.tsv (or {split}.tsv.gz): every set needs {', '.join(SPLITS[:-1])} and "
                f"{SPLITS[-1]}, so add it, or name other sets with --sets."
            )
        paths[split] = path
    found = TextSet(name, paths, {split: list(_read(path)) for split, path in paths.items()})
    known = ", ".join(map(repr, found.labels))
    if len(found.labels) < 2:
        raise UserError(f"All texts of {paths[TRAIN]} have the label {known}: there is nothing to tell apart.")
    for split in (DEV, TEST):
        for number, example in enumerate(found.splits[split], 2):
            if example.label not in found.labels:
                raise UserError(
                    f"Line {number:,} of {paths[split]} has the label {example.label!r}, which no training text has "
                    f"({known}): correct it, or add such texts to {paths[TRAIN].name}."
                )
    return found


def _read(path: Path) -> Iterator[Example]:
    """Yields the lines of a file below its header; quotation marks in it are letters like any other."""
    csv.field_size_limit(sys.maxsize)  # a text may be longer than csv expects of a field
    lines = csv.reader(texts.read_lines(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    try:
        header = next(lines, [])
        label, text = _columns(path, header)
        for fields in lines:
            if len(fields) != len(header):
                raise UserError(
                    f"Line {lines.line_num:,} of {path} has {len(fields)} columns, but the header has {len(header)}: a "
                    "tab stands between two columns, and nowhere else."
                )
            for place in (label, text):
                if not fields[place].strip():
                    raise UserError(
                        f"Line {lines.line_num:,} of {path} has an empty {header[place]}: fill it in, or remove it."
                    )
            yield Example(fields[label], fields[text])
    except csv.Error as error:
        raise UserError(f"Line {lines.line_num:,} of {path} is not tab-separated text ({error}): correct it.") from None
    if lines.line_num < 2:
        raise UserError(f"{path} has no texts below its header: give it some.")


def _columns(path: Path, header: list[str]) -> tuple[int, int]:
    """Returns the places of label and text in a line."""
    named = [name for name in TEXTS if name in header]
    if LABEL not in header or len(named) != 1:
        raise UserError(
            f"The first line of {path} has to name a column {LABEL} and a column {' or '.join(TEXTS)}, but it has "
            f"{', '.join(map(repr, header)) or 'none'}: rename its columns, or add this line."
        )
    return header.index(LABEL), header.index(named[0])
