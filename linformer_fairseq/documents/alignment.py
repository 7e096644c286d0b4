"""Which sentence of a translated document is the translation of which."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher

NUMBER = re.compile(r"(\d+)\W+")
"""The number that a sentence may begin with."""

Translation = list[list[str]]
"""The sentences of each document."""


@dataclass(frozen=True)
class Alignment:
    """The translation of each source sentence, and the shares of those that are lacking or elsewhere."""

    sentences: Translation | None
    """As many as in the source, empty where one is missing; None where it is not known which is which."""
    missing: float
    """The share of source sentences without a translation."""
    displaced: float | None
    """The share of source sentences whose translation stands in another place; None where that cannot be seen."""


def align(hypotheses: Translation, references: Translation) -> Alignment:
    """Finds the translation of each source sentence in its document.

    Where all sentences begin with their numbers, it is the one with the same number; otherwise the one in the same
    place, if every document has as many sentences as its source.

    Args:
        hypotheses: the translation of each document.
        references: of the same documents, as many sentences as in the source.
    """
    count = sum(map(len, references))
    if all(NUMBER.match(sentence) for own in references for sentence in own):
        places = [_places(*sides) for sides in zip(hypotheses, references, strict=True)]
        sentences = [
            [own[found[place]] if place in found else "" for place in range(len(theirs))]
            for own, theirs, found in zip(hypotheses, references, places, strict=True)
        ]
        moved = sum(there != place for found in places for place, there in found.items())
        return Alignment(sentences, (count - sum(map(len, places))) / count, moved / count)
    pairs = list(zip(hypotheses, references, strict=True))
    lacking = sum(max(0, len(theirs) - sum(map(bool, own))) for own, theirs in pairs)
    agreeing = all(len(own) == len(theirs) for own, theirs in pairs)
    return Alignment(hypotheses if agreeing else None, lacking / count, None)


def _places(hypothesis: list[str], reference: list[str]) -> dict[int, int]:
    """Returns where the sentences of a reference stand in its translation, by their numbers, in this order; a number
    comes again where documents stand in a row."""
    numbers = [[found and found[1] for found in map(NUMBER.match, side)] for side in (reference, hypothesis)]
    blocks = SequenceMatcher(None, *numbers, autojunk=False).get_matching_blocks()
    return {block.a + place: block.b + place for block in blocks for place in range(block.size)}
