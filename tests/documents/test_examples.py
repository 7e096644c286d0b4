"""Cutting documents into training examples."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.documents.examples import SentenceTooLongError, cut, examples, parts, refusal

DOCUMENT = [("a b", "A"), ("c", "C D E"), ("f", "F"), ("g h", "G H")]
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=20)


@given(lengths, st.integers(10, 40), st.none() | st.integers(1, 5))
def test_parts_are_as_long_as_they_can_be(own: list[int], longest: int, most: int | None) -> None:
    found = list(parts(own, longest, most))
    assert [number for start, end in found for number in range(start, end)] == list(range(len(own)))
    for start, end in found:
        assert sum(own[start:end]) + end - start <= longest
        assert most is None or end - start <= most
        if end < len(own):
            assert sum(own[start : end + 1]) + end + 1 - start > longest or end - start == most


def test_a_sentence_that_is_longer_than_a_part_is_told() -> None:
    assert list(parts([9], 10)) == [(0, 1)]
    with pytest.raises(SentenceTooLongError) as error:
        list(parts([1, 10, 1], 10))
    said = str(refusal("train", 7, error.value, 10))
    assert said.startswith("Sentence 2 of document 7 of the train set has more than the 10 subwords")
    assert re.fullmatch(r"[^\n]+\.", said)


def test_both_sides_are_cut_at_the_same_sentences() -> None:
    assert list(cut(DOCUMENT, 100)) == [("a b <sep> c <sep> f <sep> g h", "A <sep> C D E <sep> F <sep> G H")]
    # with its end, "C D E" fills a part, as the longer side counts
    assert list(cut(DOCUMENT, 4)) == [("a b", "A"), ("c", "C D E"), ("f", "F"), ("g h", "G H")]
    assert list(cut(DOCUMENT, 7)) == [("a b <sep> c", "A <sep> C D E"), ("f <sep> g h", "F <sep> G H")]
    assert list(cut(DOCUMENT, 100, 3)) == [("a b <sep> c <sep> f", "A <sep> C D E <sep> F"), ("g h", "G H")]


def test_examples_are_the_document_at_every_resolution_each_once() -> None:
    found = [source.count("<sep>") + 1 for source, _ in examples(DOCUMENT, (1, 2, 32, None), 100)]
    assert found == [1, 1, 1, 1, 2, 2, 4]
    assert [source.count("<sep>") + 1 for source, _ in examples(DOCUMENT, (1, 3), 100)] == [1, 1, 1, 1, 3]
    assert len(list(examples(DOCUMENT[:1], (1, 2, None), 100))) == 1
