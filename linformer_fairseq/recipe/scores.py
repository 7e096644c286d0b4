"""Scores of translations, and how certain a difference between two translations of a test set is."""

import logging
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest
from sacremoses import MosesTokenizer

from linformer_fairseq.cli.errors import UserError

SAMPLES = 1000
"""Number of resamples of a test set."""
SEED = 12345
"""Seed of the bootstrap."""
Counts = Sequence[numpy.ndarray]
Score = Callable[[numpy.ndarray], float]
"""Of the sum of the counts of some rows."""


def score(hypotheses: list[str], references: list[str], language: str) -> dict[str, Any]:
    """Returns the scores of a translation, in points of 100, each with sacreBLEU's signature for it.

    - `bleu`: sacreBLEU with its own tokeniser (Post, 2018).
    - `chrf`: chrF2 (Popović, 2015; 2016).
    - `compound_bleu`: what Vaswani et al. (2017) report, after tensor2tensor's get_ende_bleu.sh and fairseq's
      compound_split_bleu.sh: Moses tokens, compounds split at their hyphens, then multi-bleu's unsmoothed BLEU.

    Args:
        hypotheses: plain (detokenised) text, a sentence an entry.
        references: the same of the reference.
        language: of both, as "de".

    Raises:
        UserError: nothing to score, or unequal numbers of lines.
    """
    _check_lengths(hypotheses, references)
    bleu, chrf = BLEU(trg_lang=language), CHRF()
    compound_bleu = BLEU(tokenize="none", force=True, smooth_method="none")
    split_hypotheses, split_references = (_compound_tokens(side, language) for side in (hypotheses, references))
    return {
        "sentences": len(references),
        "bleu": round(bleu.corpus_score(hypotheses, [references]).score, 2),
        "signature": str(bleu.get_signature()),
        "chrf": round(chrf.corpus_score(hypotheses, [references]).score, 2),
        "chrf_signature": str(chrf.get_signature()),
        "compound_bleu": round(compound_bleu.corpus_score(split_hypotheses, [split_references]).score, 2),
        "compound_signature": str(compound_bleu.get_signature()),
    }


def split_compounds(line: str) -> str:
    """Returns the line with tokens cut at their hyphens: "rich-text" becomes "rich ##AT##-##AT## text".

    As perl's `s{(\\S)-(\\S)}{$1 ##AT##-##AT## $2}g`: a hyphen needs a character on both sides, and matches do not
    overlap ("a-b-c" is cut once).
    """
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", line)


def _compound_tokens(lines: list[str], language: str) -> list[str]:
    """Returns Moses tokens with compounds split, with the tokeniser's default flags, as in get_ende_bleu.sh.

    So hyphens are not split aggressively. Special characters are escaped, which does not change BLEU, as they are on
    both sides.
    """
    tokenizer = MosesTokenizer(language)
    return [split_compounds(tokenizer.tokenize(line, return_str=True)) for line in lines]


def compare(baseline: list[str], system: list[str], references: list[str], language: str) -> dict[str, float]:
    """Compares a system with a baseline by sacreBLEU's BLEU and its paired bootstrap (Koehn, 2004).

    Args:
        baseline, system, references: plain text, a sentence an entry, line by line of the same source.
        language: of all three.

    Returns:
        `difference`: BLEU of the system minus BLEU of the baseline. `low` and `high`: the middle 95 % of that
        difference over the resamples that sacreBLEU draws. `p_value`: sacreBLEU's, of a difference of this size by the
        choice of sentences; 1 where there is no difference, which sacreBLEU calls significant.

    Raises:
        UserError: nothing to compare, or unequal numbers of lines.
    """
    for hypotheses in (baseline, system):
        _check_lengths(hypotheses, references)
    bleu = BLEU(trg_lang=language, force=True)
    with _sacrebleu():
        systems = [("baseline", baseline), ("system", system)]
        _, results = PairedTest(systems, {"BLEU": bleu}, [references], test_type="bs", n_samples=SAMPLES)()
    before, after = results["BLEU"]
    difference = after.score - before.score
    of_counts = partial(bleu_of_counts, bleu)
    resamples = [resampled(of_counts, sentence_counts(bleu, side, references)) for side in (baseline, system)]
    low, high = middle(resamples[1] - resamples[0])
    return {
        "difference": round(difference, 2),
        "p_value": round(after.p_value, 4) if difference else 1.0,
        "low": round(low, 2),
        "high": round(high, 2),
    }


def resampled(score: Score, counts: numpy.ndarray) -> numpy.ndarray:
    """Returns the score of resamples of the sentences or documents that have these counts, (samples,).

    Those drawn are those that sacreBLEU draws for its p-value.
    """
    draws = numpy.random.default_rng(SEED).choice(len(counts), size=(SAMPLES, len(counts)), replace=True)
    return numpy.array([score(counts[draw].sum(0)) for draw in draws])


def difference_of_means(score: Score, baseline: Counts, system: Counts) -> dict[str, float]:
    """Returns how much higher the mean score over a system's trainings is than over the baseline's.

    Args:
        score: as `bleu_of_counts`.
        baseline, system: of each training, what `sentence_counts` returns, or whatever `score` is of, row by row of the
            same sources.

    Returns:
        `mean`: the difference. `low` and `high`: its middle 95 % in the paired bootstrap of Koehn (2004), where each
        resample of the rows scores all trainings of both.
    """
    before, after = (numpy.mean([score(own.sum(0)) for own in side]) for side in (baseline, system))
    redrawn_before, redrawn_after = (
        numpy.mean([resampled(score, own) for own in side], axis=0) for side in (baseline, system)
    )
    low, high = middle(redrawn_after - redrawn_before)
    return {"mean": float(after - before), "low": low, "high": high}


def middle(resamples: numpy.ndarray) -> tuple[float, float]:
    """Returns the bounds of the middle 95 %: a fortieth is cut off on each side, as sacreBLEU does."""
    ordered, cut = numpy.sort(resamples), len(resamples) // 40
    return float(ordered[cut]), float(ordered[-1 - cut])


def sentence_counts(bleu: BLEU, hypotheses: list[str], references: list[str]) -> numpy.ndarray:
    """Counts what BLEU counts in each sentence; the sums are the counts of the corpus.

    Returns:
        (sentences, 10): lengths of hypothesis and reference, matching n-grams and all n-grams for n = 1 to 4.
    """
    scores = [bleu.corpus_score([line], [[reference]]) for line, reference in zip(hypotheses, references, strict=True)]
    return numpy.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores])


def bleu_of_counts(bleu: BLEU, counts: numpy.ndarray) -> float:
    """Returns BLEU of the counts of a corpus, (10,), as `sentence_counts` orders them."""
    sys_len, ref_len, *rest = counts.tolist()
    orders = bleu.max_ngram_order
    return bleu.compute_bleu(rest[:orders], rest[orders:], sys_len, ref_len, bleu.smooth_method).score


@contextmanager
def _sacrebleu() -> Iterator[None]:
    """Sets sacreBLEU's seed, which it takes from an environment variable alone, and silences its log."""
    name, logger = "SACREBLEU_SEED", logging.getLogger("sacrebleu")
    before, level = os.environ.get(name), logger.level
    os.environ[name] = str(SEED)
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _check_lengths(hypotheses: list[str], references: list[str]) -> None:
    if len(hypotheses) != len(references):
        raise UserError(
            f"{len(hypotheses)} translations cannot be scored against {len(references)} references: "
            "the numbers of lines must be equal."
        )
    if not references:
        raise UserError("There is no translation to score: give at least one line.")
