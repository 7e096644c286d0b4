"""Documents: parallel texts whose sentences belong together."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TypeVar

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.texts import Pair, find_text, read_lines

SEPARATOR = "<sep>"
"""Stands between the sentences of a document that is one line of text."""

Document = list[Pair]
"""The sentences of a document, each with its translation."""
Item = TypeVar("Item")


def read_documents(folder: Path, split: str, source: str, target: str) -> list[Document]:
    """Returns the documents of `folder/split.source` and `.target`: a sentence a line, an empty line between two
    documents.

    Raises:
        UserError: the two sides do not have the same documents of the same number of sentences, a file has one
            document only, or a sentence holds the separator.
    """
    paths = [find_text(folder, split, lang) for lang in (source, target)]
    left, right = (_documents(path) for path in paths)
    for number, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        if len(ours) != len(theirs):
            first = 1 + sum(len(document) + 1 for document in left[:number])
            raise UserError(
                f"Document {number + 1:,}, from line {first:,} on, has a different number of lines in {paths[0]} "
                f"({len(ours):,}) and in {paths[1].name} ({len(theirs):,}): line n of one must translate line n of the "
                "other, and empty lines must stand at the same places."
            )
    if len(left) != len(right):
        raise UserError(
            f"{paths[0]} has {len(left):,} documents but {paths[1].name} has {len(right):,}: add the translation of "
            "the last ones, or remove them."
        )
    return [list(zip(*sides, strict=True)) for sides in zip(left, right, strict=True)]


def _documents(path: Path) -> list[list[str]]:
    """Returns the lines of each document in a file."""
    lines = read_lines(path)
    while lines and not lines[-1].strip():
        lines.pop()  # that the last document ends with empty lines too is no harm
    for number, line in enumerate(lines, 1):
        if SEPARATOR in line:
            raise UserError(
                f"Line {number:,} of {path} holds {SEPARATOR}, which stands between sentences: remove it from the text."
            )
    ends = [number for number, line in enumerate(lines) if not line.strip()]
    if not lines:
        raise UserError(f"{path} is empty: give it a sentence a line, with an empty line between two documents.")
    if not ends:
        raise UserError(
            f"{path} has no empty line, so that it would be a single document: put one between two documents."
        )
    documents = [lines[start + 1 : end] for start, end in pairwise([-1, *ends, len(lines)])]
    for number, document in enumerate(documents, 1):
        if not document:
            raise UserError(
                f"Document {number:,} of {path} is empty: let one empty line alone stand between two documents, and "
                "none at the beginning."
            )
    return documents


def numbered(document: Document) -> Document:
    """Returns a document whose sentences begin with their numbers, as verses and clauses of laws do.

    Synthetic sentences are so much alike that nothing else would tell which of them a translation has come to.
    """
    return [(f"{number} {source}", f"{number} {target}") for number, (source, target) in enumerate(document, 1)]


def grouped(sentences: Sequence[Item], sizes: Sequence[int]) -> Iterator[list[Item]]:
    """Yields the sentences of each document; `sizes` are the documents' numbers of sentences."""
    for start, end in pairwise(accumulate(sizes, initial=0)):
        yield list(sentences[start:end])
