"""Scores of translations, against counts made by hand and against a bootstrap that knows no shortcut."""

import logging
import math
import os
import random

import numpy
import pytest
from sacrebleu.metrics import BLEU

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.scores import SAMPLES, SEED, compare, score, split_compounds

REFERENCES = [
    "Die Landes-Regierung plant heute nichts.",
    "Das E-Mail-Programm läuft noch immer sehr gut.",
    "Sie sah den Nord-Ost-Wind nicht.",
]
HYPOTHESES = [
    "Die Bundes-Regierung plant heute nichts.",  # another first half of the compound
    "Das E-Mail-Programm läuft.",  # too short
    "Sie sah und sah den Nord-Ost-Wind nicht.",  # "sah" twice, where the reference has it once
]


def bleu_of(matches: tuple[int, ...], totals: tuple[int, ...], length: int, reference_length: int) -> float:
    """BLEU from its definition: brevity penalty times the geometric mean of the precisions."""
    penalty = math.exp(min(0.0, 1 - reference_length / length))
    return 100 * penalty * math.prod(m / n for m, n in zip(matches, totals, strict=True)) ** (1 / len(totals))


def test_bleu_counted_by_hand() -> None:
    """sacreBLEU's tokeniser takes the full stop off and leaves the compounds whole."""
    # n-grams:         1                2                3               4
    matches = (5 + 4 + 6, 3 + 2 + 5, 2 + 1 + 3, 1 + 0 + 2)
    totals = (6 + 4 + 8, 5 + 3 + 7, 4 + 2 + 6, 3 + 1 + 5)
    assert (matches, totals) == ((15, 10, 6, 3), (18, 15, 12, 9))
    expected = bleu_of(matches, totals, length=6 + 4 + 8, reference_length=6 + 8 + 6)
    scores = score(HYPOTHESES, REFERENCES, "de")
    assert scores["bleu"] == round(expected, 2)
    assert "tok:13a" in scores["signature"]
    assert "smooth:exp" in scores["signature"]


def test_compound_bleu_counted_by_hand() -> None:
    """With @ for ##AT##-##AT## the hypotheses are

    Die Bundes @ Regierung plant heute nichts .
    Das E @ Mail @ Programm läuft .
    Sie sah und sah den Nord @ Ost @ Wind nicht .
    """
    matches = (7 + 8 + 10, 5 + 6 + 9, 4 + 5 + 7, 3 + 4 + 6)
    totals = (8 + 8 + 12, 7 + 7 + 11, 6 + 6 + 10, 5 + 5 + 9)
    assert (matches, totals) == ((25, 20, 16, 13), (28, 25, 22, 19))
    expected = bleu_of(matches, totals, length=8 + 8 + 12, reference_length=8 + 12 + 10)
    scores = score(HYPOTHESES, REFERENCES, "de")
    assert scores["compound_bleu"] == round(expected, 2)
    assert scores["compound_bleu"] > scores["bleu"] + 10  # the halves of compounds count
    assert "tok:none" in scores["compound_signature"]
    assert "smooth:none" in scores["compound_signature"]


def test_compound_bleu_is_not_smoothed() -> None:
    scores = score(["Ein Hund sah den Mann."], ["Ein Hund sah eine alte Frau."], "de")  # no 4-gram matches
    assert scores["compound_bleu"] == 0
    assert scores["bleu"] > 0


@pytest.mark.parametrize(
    ("line", "split"),  # as perl says
    [
        ("rich-text format", "rich ##AT##-##AT## text format"),
        ("a-b", "a ##AT##-##AT## b"),
        ("a-b-c", "a ##AT##-##AT## b-c"),
        ("ab-cd-ef", "ab ##AT##-##AT## cd ##AT##-##AT## ef"),
        ("x--y", "x ##AT##-##AT## -y"),
        ("x---y", "x ##AT##-##AT## --y"),
        ("-a", "-a"),
        ("a-", "a-"),
        ("a - b", "a - b"),
        ("ß-ü", "ß ##AT##-##AT## ü"),
        ("a–b", "a–b"),
        ("", ""),
    ],
)
def test_compounds_are_split_as_perl_does(line: str, split: str) -> None:
    assert split_compounds(line) == split


def test_equal_texts_have_full_marks() -> None:
    lines = [*REFERENCES, "Er sagte: „Das ist 'R&D' [sic] in den 20-er-Jahren.“"]
    scores = score(lines, lines, "de")
    assert [scores[name] for name in ("sentences", "bleu", "chrf", "compound_bleu")] == [4, 100, 100, 100]
    assert "nc:6|nw:0" in scores["chrf_signature"]
    assert score(HYPOTHESES, REFERENCES, "de")["chrf"] < 100


def test_what_cannot_be_scored() -> None:
    with pytest.raises(UserError, match=r"^2 translations cannot be scored against 1 references: .* equal\.$"):
        score(["a", "b"], ["a"], "de")
    for baseline, system in ((["a", "b"], ["a"]), (["a"], ["a", "b"])):
        with pytest.raises(UserError, match="2 translations cannot be scored against 1"):
            compare(baseline, system, ["a"], "de")
    with pytest.raises(UserError, match="no translation"):
        score([], [], "de")


def sentences(number: int, noise: float, seed: int) -> tuple[list[str], list[str]]:
    """References, and the same with a share of the words changed."""
    chance = random.Random(seed)
    references = [[f"w{chance.randrange(50)}" for _ in range(chance.randrange(5, 15))] for _ in range(number)]
    chance = random.Random(noise)
    changed = [[word if chance.random() > noise else "x" for word in line] for line in references]
    return [" ".join(line) for line in references], [" ".join(line) for line in changed]


def test_system_against_itself() -> None:
    references, system = sentences(30, 0.2, seed=1)
    assert compare(system, system, references, "de") == {
        "difference": 0,
        "p_value": 1,
        "low": 0,
        "high": 0,
    }


def test_clearly_worse_and_clearly_better_system() -> None:
    references, good = sentences(60, 0.05, seed=2)
    _, bad = sentences(60, 0.4, seed=2)
    worse = compare(good, bad, references, "de")
    assert worse["low"] < worse["difference"] < worse["high"] < -20
    assert worse["p_value"] == round(1 / 1001, 4)
    better = compare(bad, good, references, "de")
    assert [better[name] for name in ("difference", "low", "high")] == pytest.approx(
        [-worse[name] for name in ("difference", "high", "low")]
    )


def test_systems_that_are_hard_to_tell_apart() -> None:
    references, one = sentences(40, 0.2, seed=3)
    _, other = sentences(40, 0.201, seed=3)
    found = compare(one, other, references, "de")
    assert found["difference"] != 0
    assert found["low"] < 0 < found["high"]
    assert found["p_value"] > 0.1


def test_bootstrap_is_the_naive_one() -> None:
    """Interval and p-value from scores of resampled texts, drawn alike."""
    references, baseline = sentences(12, 0.3, seed=4)
    _, system = sentences(12, 0.2, seed=4)

    def bleu(lines: list[str], indices: numpy.ndarray) -> float:
        return BLEU().corpus_score([lines[i] for i in indices], [[references[i] for i in indices]]).score

    draws = numpy.random.default_rng(SEED).choice(12, size=(SAMPLES, 12), replace=True)
    differences = sorted(bleu(system, draw) - bleu(baseline, draw) for draw in draws)
    real = bleu(system, numpy.arange(12)) - bleu(baseline, numpy.arange(12))
    sizes = numpy.abs(differences)
    as_large = int((sizes - sizes.mean() > abs(real)).sum())
    assert compare(baseline, system, references, "de") == {
        "difference": round(real, 2),
        "p_value": round((as_large + 1) / (SAMPLES + 1), 4),
        "low": round(differences[25], 2),  # a fortieth of 1000 lie below, and as many above
        "high": round(differences[-26], 2),
    }


def test_difference_is_that_of_the_scores() -> None:
    references, baseline = sentences(40, 0.3, seed=5)
    _, system = sentences(40, 0.25, seed=5)
    found, again = (compare(baseline, system, references, "de") for _ in range(2))
    assert found == again
    scores = [score(lines, references, "de")["bleu"] for lines in (baseline, system)]
    assert found["difference"] == pytest.approx(scores[1] - scores[0], abs=0.011)


def test_comparing_says_nothing_and_changes_nothing(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "3")
    caplog.set_level(logging.INFO)
    lines = [f"{line} ." for line in REFERENCES * 40]  # sacreBLEU warns of a hundred such lines
    compare(lines, lines, lines, "de")
    assert (capfd.readouterr(), caplog.messages) == (("", ""), [])
    assert os.environ["SACREBLEU_SEED"] == "3"
    logging.getLogger("sacrebleu").info("heard")
    assert caplog.messages == ["heard"]
    monkeypatch.delenv("SACREBLEU_SEED")
    compare(lines, lines, lines, "de")
    assert "SACREBLEU_SEED" not in os.environ
