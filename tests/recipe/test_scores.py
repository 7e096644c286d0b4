"""How certain a difference between two translations is, against a bootstrap that knows no shortcut."""

import random
from functools import partial

import numpy
import pytest
from sacrebleu.metrics import BLEU

from linformer_fairseq.recipe.scores import SAMPLES, SEED, bleu_of_counts, difference_of_means, sentence_counts


def sentences(number: int, noise: float, seed: int) -> tuple[list[str], list[str]]:
    """References, and the same with a share of the words changed."""
    chance = random.Random(seed)
    references = [[f"w{chance.randrange(50)}" for _ in range(chance.randrange(5, 15))] for _ in range(number)]
    chance = random.Random(noise)
    changed = [[word if chance.random() > noise else "x" for word in line] for line in references]
    return [" ".join(line) for line in references], [" ".join(line) for line in changed]


def compare(baselines: list[list[str]], systems: list[list[str]], references: list[str]) -> dict[str, float]:
    """The difference between the trainings of a baseline and those of a system."""
    bleu = BLEU()
    counts = ([sentence_counts(bleu, lines, references) for lines in side] for side in (baselines, systems))
    return difference_of_means(partial(bleu_of_counts, bleu), *counts)


def test_system_against_itself() -> None:
    references, system = sentences(30, 0.2, seed=1)
    assert compare([system], [system], references) == {"mean": 0, "low": 0, "high": 0}


def test_clearly_worse_and_clearly_better_system() -> None:
    references, good = sentences(60, 0.05, seed=2)
    _, bad = sentences(60, 0.4, seed=2)
    worse, better = compare([good], [bad], references), compare([bad], [good], references)
    assert worse["low"] < worse["mean"] < worse["high"] < -20
    assert [better[name] for name in ("mean", "low", "high")] == pytest.approx(
        [-worse[name] for name in ("mean", "high", "low")], rel=0.05
    )


def test_systems_that_are_hard_to_tell_apart() -> None:
    references, one = sentences(40, 0.2, seed=3)
    _, other = sentences(40, 0.201, seed=3)
    found = compare([one], [other], references)
    assert found["mean"] != 0
    assert found["low"] < 0 < found["high"]


def test_bootstrap_is_the_naive_one() -> None:
    """The interval from scores of resampled texts, drawn alike, of the mean over two trainings."""
    references, baseline = sentences(12, 0.3, seed=4)
    systems = [sentences(12, noise, seed=4)[1] for noise in (0.2, 0.25)]

    def bleu(lines: list[str], indices: numpy.ndarray) -> float:
        return BLEU().corpus_score([lines[i] for i in indices], [[references[i] for i in indices]]).score

    def difference(indices: numpy.ndarray) -> float:
        return float(numpy.mean([bleu(system, indices) for system in systems])) - bleu(baseline, indices)

    draws = numpy.random.default_rng(SEED).choice(12, size=(SAMPLES, 12), replace=True)
    differences = sorted(map(difference, draws))
    assert compare([baseline], systems, references) == pytest.approx(
        {
            "mean": difference(numpy.arange(12)),
            "low": differences[25],  # a fortieth of 1000 lie below, and as many above
            "high": differences[-26],
        }
    )
