"""Scores of translated documents."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy
from sacrebleu.metrics import BLEU, CHRF

from linformer_fairseq.length_buckets import Bucket, buckets
from linformer_fairseq.recipe.glossary import mentions
from linformer_fairseq.recipe.scores import bleu_of_counts, sentence_counts

from .sets import DocumentSet

POSITIONS = buckets((8, 16, 32, 64))
"""Ranges of sentences in a document, counted from 1."""
DISTANCES = buckets((64, 256, 512, 1024))
"""Ranges of tokens from the last sentence with a name, or its line in the glossary, to the next one."""

_NUMBER = re.compile(r"(\d+)\W+")

Translation = list[list[str]]
"""The sentences of each document."""


def scores(hypotheses: Translation, documents: DocumentSet) -> dict[str, Any]:
    """Returns the scores of a translation of a set.

    - `d_bleu`, `chrf`: sacreBLEU's BLEU and chrF2, a document a segment.
    - `s_bleu`: a sentence a segment, where it is known which sentence is the translation of which (`aligned`);
      otherwise None.
    - `length_ratio`: words for each word of the references.
    - `missing`: the share of source sentences without a translation.
    - `displaced`: the share of source sentences whose translation stands in another place, where that can be known.
    - `repeated`: the share of sentences that have already occurred in their document, beyond that of the references.
    - `by_position`: BLEU of sentences by their place in the source, where `s_bleu` is known.
    - `counts`: what BLEU counts in each document, from which every other difference can be made.

    Args:
        hypotheses: of every document of the set, in its order.
    """
    bleu, chrf = BLEU(trg_lang=documents.language, force=True), CHRF()
    references = documents.sentences(documents.references)
    left, right = ([" ".join(own) for own in side] for side in (hypotheses, references))
    counts = sentence_counts(bleu, left, right)
    words, wanted = counts[:, :2].sum(0)
    in_order = aligned(hypotheses, references)
    return {
        "documents": len(hypotheses),
        "d_bleu": bleu_of_counts(bleu, counts.sum(0)),
        "d_bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(left, [right]).score,
        "chrf_signature": str(chrf.get_signature()),
        "length_ratio": float(words / wanted),
        "missing": missing(hypotheses, references),
        "displaced": displaced(hypotheses, references),
        "repeated": repeated(hypotheses) - repeated(references),
        **(_by_sentence(bleu, in_order, references) if in_order else {"s_bleu": None, "by_position": None}),
        "counts": counts.tolist(),
    }


def _by_sentence(bleu: BLEU, hypotheses: Translation, references: Translation) -> dict[str, Any]:
    left, right = ([sentence for own in side for sentence in own] for side in (hypotheses, references))
    counts = sentence_counts(bleu, left, right)
    places = [place for own in references for place in range(1, len(own) + 1)]
    rows = _in_buckets(POSITIONS, places, lambda chosen: bleu_of_counts(bleu, counts[chosen].sum(0)))
    return {"s_bleu": bleu_of_counts(bleu, counts.sum(0)), "by_position": rows}


def aligned(hypotheses: Translation, references: Translation) -> Translation | None:
    """Returns the translation of each source sentence, empty where there is none: where all sentences begin with their
    numbers, the one with the same number; otherwise the one in the same place, or None where a document does not have
    as many sentences as its source."""
    if _are_numbered(references):
        return [
            [own[places[place]] if place in places else "" for place in range(len(theirs))]
            for own, theirs, places in zip(hypotheses, references, _places(hypotheses, references), strict=True)
        ]
    agreeing = all(len(own) == len(theirs) for own, theirs in zip(hypotheses, references, strict=True))
    return hypotheses if agreeing else None


def missing(hypotheses: Translation, references: Translation) -> float:
    """Returns the share of source sentences without a translation: those whose number is missing where all sentences
    begin with their numbers; otherwise those that are empty, or too few."""
    if _are_numbered(references):
        lacking = [
            len(theirs) - len(own) for own, theirs in zip(_places(hypotheses, references), references, strict=True)
        ]
    else:
        lacking = [
            max(0, len(theirs) - sum(map(bool, own))) for own, theirs in zip(hypotheses, references, strict=True)
        ]
    return sum(lacking) / sum(map(len, references))


def displaced(hypotheses: Translation, references: Translation) -> float | None:
    """Returns the share of source sentences whose translation stands in another place of its document; None where
    sentences do not begin with their numbers, by which alone that is seen."""
    if not _are_numbered(references):
        return None
    moved = sum(there != place for places in _places(hypotheses, references) for place, there in places.items())
    return moved / sum(map(len, references))


def _are_numbered(references: Translation) -> bool:
    return all(_NUMBER.match(sentence) for own in references for sentence in own)


def _places(hypotheses: Translation, references: Translation) -> list[dict[int, int]]:
    """Returns for each document where the sentences of the reference stand in the translation, by their numbers, in
    this order; a number comes again where documents stand in a row."""
    documents = []
    for sides in zip(references, hypotheses, strict=True):
        numbers = [[found and found[1] for found in map(_NUMBER.match, own)] for own in sides]
        blocks = SequenceMatcher(None, *numbers, autojunk=False).get_matching_blocks()
        documents.append({block.a + place: block.b + place for block in blocks for place in range(block.size)})
    return documents


def repeated(documents: Translation) -> float:
    """Returns the share of sentences that have already occurred in their document, whatever their numbers."""
    unnumbered = [[_NUMBER.sub("", sentence) for sentence in own] for own in documents]
    again = sum(sum(count - 1 for count in Counter(filter(None, own)).values()) for own in unnumbered)
    return again / sum(map(len, documents))


def glossary_shares(hypotheses: Translation, documents: DocumentSet) -> list[dict[str, Any]]:
    """Returns the share of names that are translated as their glossary says, by how far back the name was last, in the
    glossary or after it; the `chance` that any of its names is the right one; and of each document, in `counts`, how
    many are translated so and how many there are. A name is looked for in the translation of its own sentence (see
    `aligned`).

    Args:
        hypotheses: with as many sentences as the sources, unless these begin with their numbers.
    """
    distances, numbers, found, chances = [], [], [], []
    sources, lengths = documents.sentences(documents.sources), documents.sentences(documents.lengths)
    translated = aligned(hypotheses, documents.sentences(documents.references))
    for number, (own, source, tokens) in enumerate(zip(translated, sources, lengths, strict=True)):
        for mention in mentions(source):
            distances.append(sum(tokens[mention.last : mention.sentence]))
            numbers.append(number)
            found.append(mention.translation in re.findall(r"\w+", own[mention.sentence]))
            chances.append(1 / mention.names)

    def counts(chosen: numpy.ndarray) -> numpy.ndarray:
        right, every = (
            numpy.bincount(numpy.array(numbers)[which], minlength=len(hypotheses))
            for which in (chosen & numpy.array(found), chosen)
        )
        return numpy.stack([right, every], 1)

    by_document = _in_buckets(DISTANCES, distances, counts)
    by_chance = _in_buckets(DISTANCES, distances, lambda chosen: float(numpy.array(chances)[chosen].mean()))
    return [
        {**row, "score": share_of(row["score"].sum(0)), "counts": row["score"].tolist(), "chance": chance["score"]}
        for row, chance in zip(by_document, by_chance, strict=True)
    ]


def share_of(counts: numpy.ndarray) -> float:
    """Returns the share of names that are translated as their glossary says, of how many are and how many there are."""
    right, every = counts.tolist()
    return right / max(1, every)


def by_length(counts: numpy.ndarray, documents: DocumentSet, lengths: Sequence[int]) -> list[dict[str, Any]]:
    """Returns BLEU of documents by their length, cut at these lengths in source tokens."""
    bleu = BLEU(trg_lang=documents.language, force=True)
    return _in_buckets(
        buckets(tuple(lengths)), documents.tokens, lambda chosen: bleu_of_counts(bleu, counts[chosen].sum(0))
    )


def thirds(documents: DocumentSet) -> list[list[int]]:
    """Returns the documents of each third by length, the shortest first."""
    ordered = numpy.argsort(documents.tokens, kind="stable")
    return [sorted(third.tolist()) for third in numpy.array_split(ordered, 3) if len(third)]


def _in_buckets(
    ranges: Sequence[Bucket], values: Sequence[int], score: Callable[[numpy.ndarray], Any]
) -> list[dict[str, Any]]:
    """Returns the score of what has a value in each range that is not empty."""
    rows = []
    for bucket in ranges:
        chosen = numpy.array([value in bucket for value in values], dtype=bool)
        if chosen.any():
            bounds = {"shortest": bucket.shortest, "longest": bucket.longest}
            rows.append({**bounds, "number": int(chosen.sum()), "score": score(chosen)})
    return rows
