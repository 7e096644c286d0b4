"""Which sentence of a translated document is the translation of which."""

import pytest

from linformer_fairseq.documents.alignment import Alignment, align

NUMBERED = [["1 a", "2 b", "3 c", "4 d"], ["1 e", "2 f"]]


def test_sentences_with_numbers_are_found_by_them_wherever_they_stand() -> None:
    """The third has run into the second, and something else stands at the end instead."""
    moved = align([["1 A", "2 B C", "4 D", "4 D"], ["1 E", "2 F"]], NUMBERED)
    assert moved.sentences == [["1 A", "2 B C", "", "4 D"], ["1 E", "2 F"]]
    assert (moved.missing, moved.displaced) == (pytest.approx(1 / 6), pytest.approx(1 / 6))
    assert align([["no number", "2 B"], []], NUMBERED).sentences == [["", "2 B", "", ""], ["", ""]]
    assert align(NUMBERED, NUMBERED) == Alignment(NUMBERED, 0, 0)


def test_numbers_that_come_again_in_documents_in_a_row_are_taken_in_order() -> None:
    row = align([["1 A", "3 C", "1 D", "2 E", "2 E"]], [["1 a", "2 b", "3 c", "1 d", "2 e"]])
    assert row.sentences == [["1 A", "", "3 C", "1 D", "2 E"]]


def test_sentences_without_numbers_are_found_in_their_places() -> None:
    references = [["1 a", "b"], ["2 c"]]
    assert align([["x", "1 y"], ["z"]], references) == Alignment([["x", "1 y"], ["z"]], 0, None)
    assert align([["x"], ["z"]], references) == Alignment(None, pytest.approx(1 / 3), None)


def test_sentences_that_are_empty_or_too_few_are_missing() -> None:
    references = [["a", "b"], ["b"]]
    assert align([["a"], ["b", "c", "d"]], references).missing == pytest.approx(1 / 3)
    assert align([["a", ""], ["b"]], references).missing == pytest.approx(1 / 3)
