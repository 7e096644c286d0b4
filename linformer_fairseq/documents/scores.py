"""Scores of translated documents."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy
from sacrebleu.metrics import BLEU, CHRF

from linformer_fairseq.length_buckets import Bucket, buckets
from linformer_fairseq.recipe.scores import bleu_of_counts, sentence_counts

from .alignment import NUMBER, Translation, align
from .glossary import mentions
from .sets import DocumentSet

POSITIONS = buckets((8, 16, 32, 64))
"""Ranges of sentences in a document, counted from 1."""
DISTANCES = buckets((64, 256, 512, 1024))
"""Ranges of tokens from the last sentence with a name, or its line in the glossary, to the next one."""


def scores(hypotheses: Translation, documents: DocumentSet) -> dict[str, Any]:
    """Returns the scores of a translation of a set.

    - `d_bleu`, `chrf`: sacreBLEU's BLEU and chrF2, a document a segment.
    - `s_bleu`: a sentence a segment, where it is known which sentence is the translation of which (`align`);
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
    alignment = align(hypotheses, references)
    return {
        "documents": len(hypotheses),
        "d_bleu": bleu_of_counts(bleu, counts.sum(0)),
        "d_bleu_signature": str(bleu.get_signature()),
        "chrf": chrf.corpus_score(left, [right]).score,
        "chrf_signature": str(chrf.get_signature()),
        "length_ratio": float(words / wanted),
        "missing": alignment.missing,
        "displaced": alignment.displaced,
        "repeated": repeated(hypotheses) - repeated(references),
        **_by_sentence(bleu, alignment.sentences, references),
        "counts": counts.tolist(),
    }


def _by_sentence(bleu: BLEU, hypotheses: Translation | None, references: Translation) -> dict[str, Any]:
    if hypotheses is None:
        return {"s_bleu": None, "by_position": None}
    left, right = ([sentence for own in side for sentence in own] for side in (hypotheses, references))
    counts = sentence_counts(bleu, left, right)
    places = [place for own in references for place in range(1, len(own) + 1)]
    rows = _in_buckets(POSITIONS, places, lambda chosen: bleu_of_counts(bleu, counts[chosen].sum(0)))
    return {"s_bleu": bleu_of_counts(bleu, counts.sum(0)), "by_position": rows}


def repeated(documents: Translation) -> float:
    """Returns the share of sentences that have already occurred in their document, whatever their numbers."""
    unnumbered = [[NUMBER.sub("", sentence) for sentence in own] for own in documents]
    again = sum(sum(count - 1 for count in Counter(filter(None, own)).values()) for own in unnumbered)
    return again / sum(map(len, documents))


def glossary_shares(hypotheses: Translation, documents: DocumentSet) -> list[dict[str, Any]]:
    """Returns the share of names that are translated as their glossary says, by how far back the name was last, in the
    glossary or after it; the `chance` that any of its names is the right one; and of each document, in `counts`, how
    many are translated so and how many there are. A name is looked for in the translation of its own sentence (see
    `align`).

    Args:
        hypotheses: with as many sentences as the sources, unless these begin with their numbers.
    """
    distances, numbers, found, chances = [], [], [], []
    sources, lengths = documents.sentences(documents.sources), documents.sentences(documents.lengths)
    translated = align(hypotheses, documents.sentences(documents.references)).sentences
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
