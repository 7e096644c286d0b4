"""Made documents that tell whether a translation uses what stands far back in its source.

The first lines of such a document are a glossary: made-up names with their translations, which are drawn anew for each
document. The names come again in later sentences, where nothing but the glossary says how to translate them. A name
always has the same line: a small Transformer soon learns to look there, while it chose any name of the glossary after
millions of tokens with names in other orders.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from linformer_fairseq.recipe.texts import Pair

from .corpus import Grammar
from .reading import Document, numbered

NAMES = ("Belkor", "Dordan", "Fimwix", "Gulkor", "Kasdan", "Lemwix")
"""Names in the source, in the order of their lines."""
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
MENTIONING, RARELY_MENTIONING = 0.7, 0.08
"""The share of clauses whose subject is a name of the glossary, and that share in the test set: there names come again
so far apart that nobody can learn a translation from the last time alone."""
_ENTRY = re.compile(r"(\d+) (\w+) = (\w+)")


class Mention(NamedTuple):
    """A name in a later sentence of a document, which has not been there in the same sentence."""

    names: int
    """How many names the document has: whoever takes one of them at random is right once in so many times."""

    sentence: int
    """The number of the sentence, from 0 on."""
    last: int
    """That of the sentence before it, or of the glossary's line, where the name was last."""
    translation: str
    """What it says."""


class _GlossaryGrammar(Grammar):
    """Draws documents whose subjects may be names of a glossary.

    Args:
        mentioning: the share of clauses whose subject is one.
        source: the language translated from, "en" or "de".
    """

    def __init__(self, seed: str, mentioning: float, source: str) -> None:
        super().__init__(seed)
        self.mentioning = mentioning
        self.source = source
        self.entries: list[Pair] = []
        """The names of the document, English and German."""

    def document(self, size: int) -> Document:
        """Draws a document of `size` sentences, the first ones of which are a glossary: six names, or half of the
        sentences."""
        count = min(len(NAMES), size // 2)
        glossary = list(zip(NAMES[:count], self.rng.sample(TRANSLATIONS, count), strict=True))
        self.entries = [self._directed(entry) for entry in glossary]
        pairs = self.pairs()
        sentences = [self._directed(next(pairs)) for _ in range(size - count)]
        return numbered([*((line, line) for line in map(" = ".join, glossary)), *sentences])

    def _directed(self, pair: Pair) -> Pair:
        """Turns English and German into source and target, or the other way round."""
        return pair if self.source == "en" else pair[::-1]

    def _subject(self) -> tuple[str, str, bool]:
        if self._chance(self.mentioning):
            return (*self.rng.choice(self.entries), False)
        return super()._subject()


def glossary_documents(split: str, training: int, seed: int, source: str = "en") -> list[Document]:
    """Returns documents with a glossary, in English and German.

    Args:
        training: how many the training text gets.
        source: the language translated from, "en" or "de".
    """
    mentioning = RARELY_MENTIONING if split == "test" else MENTIONING
    grammar = _GlossaryGrammar(f"glossaries {seed} {split}", mentioning, source)
    if split not in MOST_TESTED:
        sizes = grammar.rng.choices(SIZES, weights=[1 / size for size in SIZES], k=training)
        return [grammar.document(size) for size in sizes]
    count = min(MOST_TESTED[split], max(training // TRAINED_FOR_TESTED, min(training, 2)))
    return [grammar.document(TESTED_SIZE) for _ in range(count)]


def mentions(sources: Sequence[str]) -> Iterator[Mention]:
    """Yields the names of a document's glossary wherever they come again in its source sentences."""
    entries: dict[str, str] = {}
    last: dict[str, int] = {}
    for number, sentence in enumerate(sources):
        if found := _ENTRY.fullmatch(sentence):
            entries[found[2]], last[found[2]] = found[3], number
        else:
            for word in dict.fromkeys(re.findall(r"\w+", sentence)):
                if word in entries:
                    yield Mention(len(entries), number, last[word], entries[word])
                    last[word] = number
