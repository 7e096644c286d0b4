"""Scores of translated documents."""

import math

import numpy
import pytest
import sacrebleu

from linformer_fairseq.documents.scores import (
    by_length,
    glossary_shares,
    repeated,
    scores,
    thirds,
)
from linformer_fairseq.documents.sets import DocumentSet

SOURCES = ["1 Gulkor = Amara", "It rains today.", "Gulkor sleeps now.", "He sees a house.", "Gulkor waits."]
REFERENCES = ["Gulkor = Amara", "Es regnet heute.", "Amara schläft jetzt.", "Er sieht ein Haus.", "Amara wartet."]
LENGTHS = [4, 90, 5, 600, 6]


def documents(*spans: tuple[int, int]) -> DocumentSet:
    return DocumentSet("test", "test", "test1", list(spans), SOURCES, REFERENCES, LENGTHS, "de")


TWO = documents((0, 3), (3, 5))


def test_a_perfect_translation() -> None:
    found = scores(TWO.sentences(REFERENCES), TWO)
    assert [found[name] for name in ("d_bleu", "s_bleu", "chrf")] == pytest.approx([100, 100, 100])
    assert (found["length_ratio"], found["missing"], found["repeated"], found["documents"]) == (1, 0, 0, 2)
    assert found["by_position"] == [{"shortest": 1, "longest": 8, "number": 5, "score": pytest.approx(100)}]


def test_positions_are_counted_from_one_in_each_document() -> None:
    references = [f"{number} Sätze sind hier ." for number in range(19)]
    two = DocumentSet("test", "test", "test1", [(0, 10), (10, 19)], references, references, [1] * 19, "de")
    translated = two.sentences(
        ["Etwas ganz anderes" if number in (8, 18) else x for number, x in enumerate(references)]
    )
    first, second = scores(translated, two)["by_position"]
    assert (first["number"], first["score"]) == (16, pytest.approx(100))
    assert second["number"] == 3
    assert second["score"] < 60


def test_scores_are_sacrebleus() -> None:
    translated = [["Gulkor = Amara", "Heute regnet es.", "Er schläft jetzt."], ["Er sieht Haus.", "Amara wartet."]]
    found = scores(translated, TWO)
    left, right = ([" ".join(own) for own in side] for side in (translated, TWO.sentences(REFERENCES)))
    assert found["d_bleu"] == pytest.approx(sacrebleu.corpus_bleu(left, [right]).score)
    assert found["chrf"] == pytest.approx(sacrebleu.corpus_chrf(left, [right]).score)
    flat = [sentence for own in translated for sentence in own]
    assert found["s_bleu"] == pytest.approx(sacrebleu.corpus_bleu(flat, [REFERENCES]).score)
    assert numpy.array(found["counts"]).shape == (2, 10)


def test_sentences_are_scored_where_their_numbers_agree_alone() -> None:
    found = scores(
        [["Gulkor = Amara", "Es regnet heute. Amara schläft jetzt."], ["Er sieht ein Haus.", "Amara wartet."]], TWO
    )
    assert (found["s_bleu"], found["by_position"]) == (None, None)
    assert found["d_bleu"] == pytest.approx(100)
    assert found["missing"] == pytest.approx(1 / 5)


def test_repeated_sentences() -> None:
    assert repeated([["a", "a", "b", "a"], ["a"]]) == pytest.approx(2 / 5)
    assert repeated([["a", "b"]]) == 0
    assert repeated([["a", "", "", ""]]) == 0
    assert repeated([["1 a", "2 a", "3", "4 4"], ["1 a"]]) == pytest.approx(1 / 5)
    found = scores([["Es regnet heute."] * 3, ["Er sieht ein Haus.", "Amara wartet."]], TWO)
    assert found["repeated"] == pytest.approx(2 / 5)


def test_scores_of_sentences_with_numbers_follow_them() -> None:
    sides = [[f"{number} Sätze sind hier ." for number in range(1, 12)]]
    one = DocumentSet("test", "test", "test1", [(0, 11)], *sides * 2, [1] * 11, "de")
    found = scores([sides[0][:8] + sides[0][9:]], one)  # the ninth is missing
    assert [row["score"] for row in found["by_position"]] == [pytest.approx(100), pytest.approx(100 * math.exp(-0.5))]
    assert (found["missing"], found["displaced"]) == (pytest.approx(1 / 11), pytest.approx(2 / 11))


def test_names_are_found_by_the_numbers_of_their_sentences() -> None:
    sources = ["1 Gulkor = Amara", "2 It rains.", "3 Gulkor waits."]
    numbered = DocumentSet(
        "glossary", "test", "test", [(0, 3)], sources, ["1 Gulkor = Amara", "2 x", "3 y"], [4] * 3, "de"
    )
    (found,) = glossary_shares([["1 Gulkor = Amara", "3 Amara wartet.", "3 Er wartet."]], numbered)
    assert found["counts"] == [[1, 1]]
    (found,) = glossary_shares([["1 Gulkor = Amara", "2 Es regnet.", "4 Amara wartet."]], numbered)
    assert found["counts"] == [[0, 1]]


def test_names_are_looked_for_in_their_own_sentence_by_how_far_back_they_were_last() -> None:
    one = documents((0, 5))
    translated = ["Gulkor = Amara", "Amara", "Amara schläft.", "Amara", "Er wartet."]
    found = glossary_shares([translated], one)
    assert found == [
        {"shortest": 65, "longest": 256, "number": 1, "score": 1.0, "counts": [[1, 1]], "chance": 1.0},
        {"shortest": 513, "longest": 1024, "number": 1, "score": 0.0, "counts": [[0, 1]], "chance": 1.0},
    ]
    for gap, bucket in ((59, "64"), (60, "256")):  # with the five tokens of the sentence where the name was last
        near = DocumentSet("glossary", "test", "test", [(0, 5)], SOURCES, REFERENCES, [9, 9, 5, gap, 9], "de")
        assert str(glossary_shares([translated], near)[-1]["longest"]) == bucket
    two = ["1 Gulkor = Amara", "2 Beldan = Obara", "Gulkor sleeps.", "Beldan waits.", "It rains."]
    both = DocumentSet("glossary", "test", "test", [(0, 5)], two, REFERENCES, [4, 4, 4, 4, 4], "de")
    translated = [["", "", "Obara schläft.", "Obara wartet.", ""]]
    assert glossary_shares(translated, both) == [
        {"shortest": 1, "longest": 64, "number": 2, "score": 0.5, "counts": [[1, 2]], "chance": 0.5}
    ]


def test_documents_by_length_and_in_thirds() -> None:
    counts = numpy.array(scores(TWO.sentences(REFERENCES), TWO)["counts"])
    found = by_length(counts, TWO, (99, 512))
    assert [(row["shortest"], row["longest"], row["number"]) for row in found] == [(1, 99, 1), (513, None, 1)]
    three = documents((3, 4), (0, 2), (2, 3))
    assert thirds(three) == [[2], [1], [0]]
    assert thirds(TWO) == [[0], [1]]
