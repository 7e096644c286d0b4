"""The sets of documents that are translated."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.documents.sets import _in_a_row, spans_of


def test_made_documents_are_a_set_of_their_own() -> None:
    facts = {
        "documents": {"train": [3], "valid": [2, 1, 4], "test": [2, 3, 4]},
        "glossaries": {"train": 0, "valid": 1, "test": 1},
    }
    lengths = {split: [(4, 5)] * 9 for split in facts["documents"]}
    found = spans_of(facts, lengths, 20, 99)
    assert found == {
        "valid": ("valid", [(0, 2), (2, 3)]),
        "test": ("test", [(0, 2), (2, 5)]),
        "long": ("test", [(0, 2), (2, 5)]),
        "glossary": ("test", [(5, 9)]),
    }
    assert spans_of(facts, lengths, 25, 99)["long"] == ("test", [(0, 2), (2, 5)])  # a sixteenth of 25 stays free
    assert spans_of(facts, lengths, 27, 99)["long"] == ("test", [(0, 5)])
    assert spans_of(facts, lengths, 25, 11)["glossary"] == ("test", [(5, 7)])  # only its first part has the glossary
    facts["glossaries"] = dict.fromkeys(facts["glossaries"], 0)
    assert "glossary" not in spans_of(facts, lengths, 20, 99)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(1, 40))
def test_documents_in_a_row_fill_the_length(sizes: list[int], longest: int) -> None:
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    spans = list(pairwise(ends))
    lengths = [3] * ends[-1]
    found = list(_in_a_row(spans, lengths, longest))
    assert found[0][0] == 0
    assert found[-1][1] == ends[-1]
    assert all(first[1] == second[0] for first, second in pairwise(found))
    for start, end in found:
        assert (start, end) in spans or 3 * (end - start) <= longest
    for (start, _), following in pairwise(found):
        first_document = next(end for begin, end in spans if begin == following[0])
        assert 3 * (first_document - start) > longest
