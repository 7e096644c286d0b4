"""Scores of translations, and how certain a difference between two translations of a test set is."""

from collections.abc import Callable, Sequence

import numpy
from sacrebleu.metrics import BLEU

SAMPLES = 1000
"""Number of resamples of a test set."""
SEED = 12345
"""Seed of the bootstrap."""
Counts = Sequence[numpy.ndarray]
Score = Callable[[numpy.ndarray], float]
"""Of the sum of the counts of some rows."""


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
