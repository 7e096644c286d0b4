#!/usr/bin/env python3
"""Prints the scores of translated documents, as JSON.

usage: score.py BIN RUN REFERENCE SRC TGT [TOKENS ...]

RUN/test.TGT is the translation of the subset `test` of BIN. Like the reference, it has one document per line, with tabs
between sentences; for BLEU and chrF a tab is a space. With TOKENS there are several translations instead, such as
RUN/test-1024.TGT in parts of up to 1,024 tokens, and the names of their scores begin with `1024: `.

- d-BLEU, chrF: each document is one segment.
- s-BLEU: each sentence is one segment; only if all documents have as many sentences as their source.
- missing, out of place: the share of source sentences without a translation, and of those whose translation stands in
  another place. Where all sentences of the reference begin with numbers, a translation is known by its number;
  otherwise the missing ones are those by which a document is shorter, and what is out of place is not known.
- names kept: of the words with a capital or an underscore that a source sentence, but for its first word, has in common
  with its reference, the share that its translation has, too.
- d-BLEU by the length of the source in tokens.
- names right: the share of names of a document's glossary (make_documents.py) that are translated as it says, by the
  number of source tokens since the previous occurrence of the name, in the glossary or after it.
"""

import html
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

Documents = Sequence[Sequence[str]]
"""The sentences of each document."""
LENGTHS, DISTANCES = (512, 1024, 2048), (64, 256, 512, 1024)
"""Where ranges of tokens end; the last range has no end."""
NUMBER = re.compile(r"(\d+)\W")
ENTRY = re.compile(r"\d+ (\w+) = (\w+)")


class Mention(NamedTuple):
    """A name of a document's glossary in a later sentence."""

    document: int
    sentence: int
    translation: str
    distance: int
    names: int
    """How many the glossary has: who takes any of them is right once in so many times."""


def numbers(sentences: Sequence[str]) -> list[str]:
    """Returns the number that each sentence begins with, or nothing where it has none."""
    return [found[1] if (found := NUMBER.match(sentence)) else "" for sentence in sentences]


def aligned(hypotheses: Documents, references: Documents) -> list[list[int]] | None:
    """Returns where the translation of each sentence stands in its document, -1 where there is none; None where the
    references have no numbers that say so."""
    expected = [numbers(document) for document in references]
    if not all(all(own) and len(set(own)) == len(own) for own in expected):
        return None
    found = [numbers(document) for document in hypotheses]
    return [[own.index(n) if n in own else -1 for n in theirs] for own, theirs in zip(found, expected, strict=True)]


def mentions(sources: Documents) -> Iterator[Mention]:
    """Yields the names of glossaries, the first sentences of documents, wherever they come again.

    Args:
        sources: sentences of subwords.
    """
    for number, document in enumerate(sources):
        words = [sentence.replace("@@ ", "") for sentence in document]
        entries = [(found[1], found[2]) for found in takewhile(bool, map(ENTRY.fullmatch, words)) if found]
        told, last = dict(entries), {name: place for place, (name, _) in enumerate(entries)}
        for place in range(len(entries), len(document)):
            for name in told.keys() & set(words[place].split()):
                between = document[last[name] : place]
                distance = sum(len(sentence.split()) + 1 for sentence in between)
                yield Mention(number, place, told[name], distance, len(told))
                last[name] = place


def by_range(values: Sequence[int], ends: Sequence[int]) -> Iterator[tuple[str, list[int]]]:
    """Yields the ranges in which some of the values lie, and which these are."""
    for low, high in zip((0, *ends), (*ends, sys.maxsize), strict=True):
        chosen = [index for index, value in enumerate(values) if low < value <= high]
        if chosen:
            yield f"{low + 1}-{high}" if high < sys.maxsize else f"over {low}", chosen


def score(hypotheses: Documents, references: Documents, sources: Documents, lang: str) -> dict[str, object]:
    """Returns all scores by their names.

    Args:
        sources: sentences of subwords.
        lang: the target language.
    """
    bleu, chrf = BLEU(trg_lang=lang, force=True), CHRF()
    left, right = ([" ".join(document) for document in side] for side in (hypotheses, references))
    scores: dict[str, object] = {
        "d-BLEU": bleu.corpus_score(left, [right]).score,
        "chrF": chrf.corpus_score(left, [right]).score,
    }
    if [*map(len, hypotheses)] == [*map(len, references)]:
        flat = [[sentence for document in side for sentence in document] for side in (hypotheses, references)]
        scores["s-BLEU"] = bleu.corpus_score(flat[0], [flat[1]]).score
    count, places = sum(map(len, references)), aligned(hypotheses, references)
    if places is None:
        pairs = zip(hypotheses, references, strict=True)
        missing = sum(max(0, len(theirs) - len([*filter(None, own)])) for own, theirs in pairs)
    else:
        missing = sum(own.count(-1) for own in places)
        moved = sum(place not in (-1, n) for own in places for n, place in enumerate(own))
        scores["out of place, %"] = 100 * moved / count
    scores["missing, %"] = 100 * missing / count
    if kept := list(names_kept(hypotheses, references, sources, places)):
        scores["names kept, %"] = 100 * sum(kept) / len(kept)
    lengths = [sum(len(sentence.split()) + 1 for sentence in document) for document in sources]
    for name, chosen in by_range(lengths, LENGTHS):
        part = bleu.corpus_score([left[i] for i in chosen], [[right[i] for i in chosen]])
        scores[f"d-BLEU, {name} tokens"] = part.score
    if named := list(mentions(sources)):
        scores |= names_right(named, hypotheses, places)
    return {**scores, "signatures": [str(metric.get_signature()) for metric in (bleu, chrf)]}


def names_kept(
    hypotheses: Documents, references: Documents, sources: Documents, places: Sequence[Sequence[int]] | None
) -> Iterator[bool]:
    """Yields whether a translation has it, for each name that a source sentence and its reference share."""

    def words(text: str) -> list[str]:  # the tokeniser puts spaces on either side of an underscore
        return re.findall(r"[^\W\d]\w*", re.sub(" ?_ ?", "_", html.unescape(text)))

    for number, (source, reference) in enumerate(zip(sources, references, strict=True)):
        for place, (sentence, theirs) in enumerate(zip(source, reference, strict=False)):
            own = place if places is None else places[number][place]
            translation = hypotheses[number][own] if 0 <= own < len(hypotheses[number]) else ""
            names = {word for word in words(sentence.replace("@@ ", ""))[1:] if word != word.lower() or "_" in word}
            for name in names & set(words(theirs)):
                yield name in words(translation)


def names_right(
    named: Sequence[Mention], hypotheses: Documents, places: Sequence[Sequence[int]] | None
) -> dict[str, object]:
    """Returns the share of names that are right in the translations of their sentences, by distance, and by chance."""
    right = []
    for mention in named:
        place = mention.sentence if places is None else places[mention.document][mention.sentence]
        document = hypotheses[mention.document]
        right.append(0 <= place < len(document) and mention.translation in re.findall(r"\w+", document[place]))

    def share(chosen: Sequence[int], value: Callable[[int], float]) -> float:
        return 100 * sum(map(value, chosen)) / len(chosen)

    scores: dict[str, object] = {}
    for name, chosen in by_range([mention.distance for mention in named], DISTANCES):
        scores[f"names right, {name} tokens, %"] = share(chosen, lambda i: right[i])
    scores["any name of the glossary, %"] = share(range(len(named)), lambda i: 1 / named[i].names)
    return scores


def documents(path: Path) -> list[list[str]]:
    """Returns the sentences of each document of a file."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def subwords(folder: Path, source: str, target: str) -> list[list[str]]:
    """Returns the sentences of the test set's sources from its binary data."""
    from fairseq.data import Dictionary, data_utils

    words = Dictionary.load(str(folder / f"dict.{source}.txt"))
    data = data_utils.load_indexed_dataset(str(folder / f"test.{source}-{target}.{source}"), words)
    return [words.string(data[i]).split(" <sep> ") for i in range(len(data))]


def main() -> None:
    """Reads the command line and prints the scores, with the perplexity and the times that RUN's logs have."""
    folder, run, reference = map(Path, sys.argv[1:4])
    source, target, *parts = sys.argv[4:]
    references, sources = documents(reference), subwords(folder, source, target)
    scores: dict[str, object] = {
        "perplexity": float(re.findall(r'"valid_ppl": "([^"]+)"', (run / "validate.log").read_text())[-1])
    }
    pattern = r"Translated .* in ([\d.]+)s \(.* ([\d.]+) tokens/s\)"
    for way, prefix in [(f"-{tokens}", f"{tokens}: ") for tokens in parts] or [("", "")]:
        own = score(documents(run / f"test{way}.{target}"), references, sources, target)
        times = re.findall(pattern, (run / f"generate{way}.log").read_text())[-1]
        own |= dict(zip(("translation, s", "tokens/s"), map(float, times), strict=True))
        scores["signatures"] = own.pop("signatures")
        scores |= {prefix + name: value for name, value in own.items()}
    print(json.dumps({name: round(v, 2) if isinstance(v, float) else v for name, v in scores.items()}, indent=2))


if __name__ == "__main__":
    main()
