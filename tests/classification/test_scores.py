"""Scores of predicted classes."""

import numpy
import pytest

from linformer_fairseq.classification.scores import difference, scores

TRUTH = [0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
FOUND = [0, 0, 0, 1, 1, 1, 1, 0, 0, 0]


def test_two_classes() -> None:
    right, wrong, missed, rejected = 3, 1, 3, 3
    found = scores(TRUTH, FOUND, 2)
    assert found["accuracy"] == pytest.approx(60)
    assert found["f1"] == pytest.approx(100 * 2 * right / (2 * right + wrong + missed))
    matthews = (right * rejected - wrong * missed) / numpy.sqrt(4 * 6 * 4 * 6)
    assert found["matthews"] == pytest.approx(100 * matthews)


def test_f1_of_several_classes_is_their_mean() -> None:
    assert scores([0, 1, 2, 2], [0, 1, 2, 1], 3)["f1"] == pytest.approx(100 * (1 + 2 / 3 + 2 / 3) / 3)
    assert scores([0, 1], [0, 1], 3)["f1"] == pytest.approx(200 / 3)  # one class does not occur


def test_one_class_for_all() -> None:
    assert scores(TRUTH, [0] * 10, 2) == pytest.approx({"accuracy": 40, "f1": 0, "matthews": 0})


def test_the_interval_of_a_difference_is_over_texts() -> None:
    truth = [0, 1] * 100
    base, better = [0] * 200, [0, 1] * 80 + [0] * 40
    found = difference(truth, [base, base], [better, base])
    assert found["mean"] == pytest.approx((90 - 50) / 2)
    assert 14 < found["low"] < 20 < found["high"] < 26
    same = difference(truth, [base], [base])
    assert same == {"mean": 0, "low": 0, "high": 0}
