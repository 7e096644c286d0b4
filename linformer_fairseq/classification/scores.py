"""Scores of predicted classes, by scikit-learn, and how certain a difference between two models is."""

from collections.abc import Sequence

import numpy
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from linformer_fairseq.recipe.scores import difference_of_means

from .arguments import ACCURACY, METRICS

Classes = Sequence[int]
"""Of the texts of a split, in its order."""


def score(metric: str, truth: Classes, predicted: Classes, classes: int) -> float:
    """Returns a metric of predictions, in points of 100.

    F1 is that of the second of two classes, and of more of them the mean over classes.

    Args:
        classes: how many there are, whichever occur.
    """
    if metric == ACCURACY:
        found = accuracy_score(truth, predicted)
    elif metric == "f1":
        which = {"average": "binary", "pos_label": 1} if classes == 2 else {"average": "macro"}
        found = f1_score(truth, predicted, labels=range(classes), zero_division=0.0, **which)
    else:
        found = matthews_corrcoef(truth, predicted)
    return 100 * float(found)


def scores(truth: Classes, predicted: Classes, classes: int) -> dict[str, float]:
    """Returns all metrics of predictions."""
    return {metric: score(metric, truth, predicted, classes) for metric in METRICS}


def difference(truth: Classes, baseline: Sequence[Classes], system: Sequence[Classes]) -> dict[str, float]:
    """Returns how much higher the mean accuracy over a system's trainings is than over the baseline's, in points of
    100, as `recipe.scores.difference_of_means` does for each text."""
    return difference_of_means(_accuracy, *([_counts(truth, own) for own in side] for side in (baseline, system)))


def _counts(truth: Classes, predicted: Classes) -> numpy.ndarray:
    """Returns, for each text, whether it is classified as it is labelled, and one: (texts, 2)."""
    right = numpy.equal(truth, predicted)
    return numpy.stack([right, numpy.ones_like(right)], 1).astype(int)


def _accuracy(counts: numpy.ndarray) -> float:
    right, every = counts.tolist()
    return 100 * right / every
