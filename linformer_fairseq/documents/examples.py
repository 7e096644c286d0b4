"""Training examples of documents at several resolutions: some sentences each, or all of them (Sun et al., 2022)."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.texts import Pair
from linformer_fairseq.tasks.parts import filled

from .reading import SEPARATOR, Document


class Part(NamedTuple):
    """Sentences of a document in a row: those from `start` to before `end`."""

    start: int
    end: int


class SentenceTooLongError(ValueError):
    """A sentence of a document is longer than a part may be; `number` says which, counted from 1."""

    def __init__(self, number: int) -> None:
        super().__init__(f"sentence {number} is longer than a part")
        self.number = number


def parts(lengths: Sequence[int], longest: int, most: int | None = None) -> Iterator[Part]:
    """Yields the parts into which a document is cut, each as long as it can be.

    Args:
        lengths: subwords of each sentence.
        longest: subwords of a part, the separators between its sentences and its end symbol included.
        most: sentences of a part; None for any number.

    Raises:
        SentenceTooLongError: a sentence is longer than a part.
    """
    for number, length in enumerate(lengths, 1):
        if length + 1 > longest:
            raise SentenceTooLongError(number)
    for start, end in pairwise(accumulate(filled(lengths, longest, most), initial=0)):
        yield Part(start, end)


def joined(document: Document) -> Pair:
    """Returns a document, or a part of one, as a line of each language."""
    source, target = (f" {SEPARATOR} ".join(sentences) for sentences in zip(*document, strict=True))
    return source, target


def cut(document: Document, longest: int, most: int | None = None) -> Iterator[Pair]:
    """Yields the parts of a document of subwords as lines; the arguments are those of `parts`, and hold on both sides.

    Raises:
        SentenceTooLongError: as `parts` does.
    """
    lengths = [max(len(side.split()) for side in pair) for pair in document]
    for start, end in parts(lengths, longest, most):
        yield joined(document[start:end])


def examples(document: Document, resolutions: Sequence[int | None], longest: int) -> Iterator[Pair]:
    """Yields a document at every resolution; no part stands there twice.

    Args:
        document: sentences of subwords.
        resolutions: numbers of sentences; None for the document as whole as it may be.
        longest: subwords of a part, at most.
    """
    ways = [list(cut(document, longest, most)) for most in resolutions]
    yield from dict.fromkeys(pair for way in ways for pair in way)


def refusal(split: str, document: int, error: SentenceTooLongError, longest: int) -> UserError:
    """Returns what to say of a document, counted from 1, that `cut` could not cut."""
    return UserError(
        f"Sentence {error.number} of document {document:,} of the {split} set has more than the {longest:,} subwords "
        "of the longest example, its end included: shorten it, or raise --max-subwords."
    )
