"""Made documents that tell whether a translation uses what stands far back in its source.

The first lines of such a document are a glossary: made-up names with their translations, which are drawn anew for each
document. The names come again in later sentences, where nothing but the glossary says how to translate them.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from .corpus import NamingGrammar
from .documents import Document, numbered
from .texts import Pair

NAMES = tuple(map("".join, product(("Bel", "Dor", "Fim", "Gul", "Kas", "Lem", "Nor", "Tav"), ("kor", "dan", "wix"))))
"""Names in the source."""
TRANSLATIONS = tuple(
    map("".join, product(("Ama", "Eli", "Iso", "Oru", "Uma", "Yla", "Esa", "Oba"), ("ra", "ne", "to")))
)
"""Names in the target."""
SIZES = (4, 8, 16, 32, 64, 128)
"""Sentences of a document in the training text; all sizes have about as many sentences in all."""
TESTED_SIZE = 110
"""Sentences of a document in the validation and test sets."""
MOST_TESTED = {"valid": 4, "test": 24}
"""Documents in these sets, at most."""
TRAINED_FOR_TESTED = 50
"""Documents in the training text for each one in a set, unless that leaves fewer than two."""
MOST_NAMES = 6
MENTIONING = 0.3
"""The share of clauses whose subject is a name of the glossary."""
_ENTRY = re.compile(r"(\d+) (\w+) = (\w+)")


class Mention(NamedTuple):
    """A name in a later sentence of a document."""

    names: int
    """How many names the document has: whoever takes one of them at random is right once in so many times."""

    sentence: int
    """The number of the sentence, from 0 on."""
    entry: int
    """That of the glossary's line that says what the name is in the target."""
    translation: str
    """What it says."""


class _GlossaryGrammar(NamingGrammar):
    """Draws sentences whose subjects may be names of a glossary."""

    def __init__(self, seed: str) -> None:
        super().__init__(seed)
        self.entries: list[Pair] = []

    def document(self, size: int) -> Document:
        """Draws a document of `size` sentences, English to German, the first one to six of which are a glossary."""
        count = self.rng.randint(1, min(MOST_NAMES, size // 2))
        self.entries = list(zip(self.rng.sample(NAMES, count), self.rng.sample(TRANSLATIONS, count), strict=True))
        lines = [" = ".join(entry) for entry in self.entries]
        pairs = self.pairs()
        return numbered([*((line, line) for line in lines), *(next(pairs) for _ in range(size - count))])

    def _subject(self) -> tuple[str, str, bool]:
        if self._chance(MENTIONING):
            return (*self.rng.choice(self.entries), False)
        return super()._subject()


def glossary_documents(split: str, training: int, seed: int, source: str = "en") -> list[Document]:
    """Returns documents with a glossary, in English and German.

    Args:
        training: how many the training text gets.
        source: the language translated from, "en" or "de".
    """
    documents = _english_to_german(split, training, seed)
    return documents if source == "en" else [list(map(_reversed, document)) for document in documents]


def _reversed(pair: Pair) -> Pair:
    """Returns a pair for the other direction; the line of a glossary has the name that is translated first."""
    line = _ENTRY.sub(r"\1 \3 = \2", pair[0])
    return pair[::-1] if line == pair[0] else (line, line)


def _english_to_german(split: str, training: int, seed: int) -> list[Document]:
    grammar = _GlossaryGrammar(f"glossaries {seed} {split}")
    if split not in MOST_TESTED:
        sizes = grammar.rng.choices(SIZES, weights=[1 / size for size in SIZES], k=training)
        return [grammar.document(size) for size in sizes]
    count = min(MOST_TESTED[split], max(training // TRAINED_FOR_TESTED, min(training, 2)))
    return [grammar.document(TESTED_SIZE) for _ in range(count)]


def mentions(sources: Sequence[str]) -> Iterator[Mention]:
    """Yields the names of a document's glossary wherever they come again in its source sentences."""
    entries: dict[str, tuple[int, str]] = {}
    for number, sentence in enumerate(sources):
        if found := _ENTRY.fullmatch(sentence):
            entries[found[2]] = (number, found[3])
        else:
            for word in re.findall(r"\w+", sentence):
                if word in entries:
                    yield Mention(len(entries), number, *entries[word])
