"""The sets of documents that every model translates."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.files import read_json
from linformer_fairseq.recipe import texts

from .examples import parts

VALID, TEST, LONG, GLOSSARY = "valid", "test", "long", "glossary"
FILE_NAME = "sets.json"
SIZES = "documents"
"""The fact that says how many sentences each document of a split has."""
GLOSSARIES = "glossaries"
"""The fact that says how many documents at the end of a split begin with a glossary."""
TESTED = "tested"
"""The folder of their text, and that of their binary data."""

Span = tuple[int, int]
"""The sentences of a document in its split: the first, and the one after the last."""


@dataclass(frozen=True)
class DocumentSet:
    """Documents to translate."""

    name: str
    split: str
    """The split of the text that they are from."""
    subset: str
    """What fairseq calls their binary data."""
    spans: list[Span]
    sources: list[str]
    """The sentences of the split, as they came."""
    references: list[str]
    lengths: list[int]
    """Subwords of each source sentence, with the symbol after it."""
    language: str
    """Of the references."""

    def sentences(self, lines: Sequence[Any]) -> list[list[Any]]:
        """Returns what `lines` holds for each sentence of the split, document by document."""
        return [list(lines[start:end]) for start, end in self.spans]

    @cached_property
    def tokens(self) -> list[int]:
        """Source tokens of each document."""
        return [sum(own) for own in self.sentences(self.lengths)]


def spans_of(
    facts: dict[str, Any], lengths: dict[str, list[tuple[int, int]]], longest: int, trained: int
) -> dict[str, tuple[str, list[Span]]]:
    """Returns the split and the documents of every set that has any.

    Args:
        facts: those of the collected text.
        lengths: subwords of each sentence of a split on both sides, with the symbol after it.
        longest: subwords that documents of the long set have at most on either side. They leave a sixteenth of it free,
            as a translation may be longer than its reference.
        trained: subwords that those with a glossary have at most: they end where they would be cut, as only the first
            part has the glossary.
    """
    spans = {split: list(pairwise(accumulate(sizes, initial=0))) for split, sizes in facts[SIZES].items()}
    made = facts[GLOSSARIES]
    own = {split: spans[split][: len(spans[split]) - made[split]] for split in spans}
    sources, longer = [source for source, _ in lengths[TEST]], list(map(max, lengths[TEST]))
    sets = {
        VALID: (VALID, own[VALID]),
        TEST: (TEST, own[TEST]),
        LONG: (TEST, list(_in_a_row(own[TEST], longer, longest - longest // 16))),
        GLOSSARY: (TEST, [_first_part(span, sources, trained) for span in spans[TEST][len(own[TEST]) :]]),
    }
    return {name: found for name, found in sets.items() if found[1]}


def _first_part(span: Span, lengths: Sequence[int], longest: int) -> Span:
    """Returns as much of a document as fits into `longest` tokens."""
    start, end = span
    first = next(parts([length - 1 for length in lengths[start:end]], longest))
    return start, start + first.end


def _in_a_row(spans: Sequence[Span], lengths: Sequence[int], longest: int) -> Iterator[Span]:
    """Yields documents that follow each other as one, as many as fit into `longest` tokens; one that does not fit stays
    alone."""
    first, last = spans[0]
    for start, end in spans[1:]:
        if sum(lengths[first:end]) > longest:
            yield first, last
            first = start
        last = end
    yield first, last


def read_sets(out: Path, source: str, target: str) -> dict[str, DocumentSet]:
    """Returns the sets of the prepared text in a folder, by name."""
    raw, bpe = out / "text" / "raw", out / "text" / "bpe"
    sets = {}
    for number, (name, (split, spans)) in enumerate(read_json(out / TESTED / FILE_NAME).items()):
        sides = (texts.read_lines(raw / f"{split}.{lang}") for lang in (source, target))
        sets[name] = DocumentSet(
            name,
            split,
            f"test{number or ''}",
            [tuple(span) for span in spans],
            *sides,
            subwords(bpe, split, source),
            target,
        )
    return sets


def subwords(bpe: Path, split: str, lang: str) -> list[int]:
    """Returns the number of subwords of each sentence of a split, the symbol after it included."""
    return [len(line.split()) + 1 for line in texts.read_lines(bpe / f"{split}.{lang}")]
