"""Documents are cut at sentence borders and joined again."""

from itertools import combinations, pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.tasks.parts import cut, even_parts, halves, join, sentence_lengths
from tests.tasks.toy_documents import document, document_task

LENGTHS = st.lists(st.integers(0, 6), min_size=1, max_size=7)


def part_tokens(lengths: list[int], sizes: list[int]) -> list[int]:
    """Returns the tokens of each part, its end included."""
    borders = [0, *torch.tensor(sizes).cumsum(0).tolist()]
    return [sum(lengths[a:b]) + b - a for a, b in pairwise(borders)]


def all_partitions(count: int) -> list[list[int]]:
    """Returns all ways to divide `count` sentences into parts."""
    return [
        [b - a for a, b in pairwise((0, *borders, count))]
        for chosen in range(count)
        for borders in combinations(range(1, count), chosen)
    ]


@given(LENGTHS)
def test_sentence_lengths(lengths: list[int]) -> None:
    task = document_task()
    assert sentence_lengths(document(task, lengths), task.source_separator) == lengths


@given(LENGTHS, st.integers(0, 12))
def test_parts_are_few_and_even(lengths: list[int], more: int) -> None:
    """No other way to divide has fewer parts, and none of as many has a shorter longest part."""
    limit = max(lengths) + 1 + more
    sizes = even_parts(lengths, limit)
    assert sum(sizes) == len(lengths)
    longest = max(part_tokens(lengths, sizes))
    assert longest <= limit
    fitting = [p for p in all_partitions(len(lengths)) if max(part_tokens(lengths, p)) <= limit]
    fewest = min(map(len, fitting))
    assert len(sizes) == fewest
    assert longest == min(max(part_tokens(lengths, p)) for p in fitting if len(p) == fewest)


@given(st.lists(st.integers(0, 6), min_size=2, max_size=7))
def test_halves(lengths: list[int]) -> None:
    sizes = halves(lengths)
    assert len(sizes) == 2
    assert sum(sizes) == len(lengths)
    assert min(sizes) > 0
    others = [p for p in all_partitions(len(lengths)) if len(p) == 2]
    assert max(part_tokens(lengths, sizes)) == min(max(part_tokens(lengths, p)) for p in others)


@given(LENGTHS, st.data())
def test_cut(lengths: list[int], data: st.DataObject) -> None:
    """Each part is a document of its sentences, and the document itself is unchanged."""
    task = document_task()
    sizes = data.draw(st.sampled_from(all_partitions(len(lengths))))
    whole = document(task, lengths)
    before = whole.clone()
    parts = cut(whole, task.source_separator, sizes)
    assert torch.equal(whole, before)
    assert [sentence_lengths(part, task.source_separator) for part in parts] == [
        lengths[a:b] for a, b in pairwise([0, *torch.tensor(sizes).cumsum(0).tolist()])
    ]
    text = " <sep> ".join(task.src_dict.string(part) for part in parts)
    assert text.split() == task.src_dict.string(whole).split()


def hypothesis(tokens: list[int], scores: list[float]) -> dict:
    nothing = torch.empty(0)
    return {"tokens": torch.tensor([*tokens, 2]), "positional_scores": torch.tensor(scores), "alignment": nothing}


@pytest.mark.parametrize(("normalize", "power", "score"), [(True, 1.0, -3.0), (True, 2.0, -0.6), (False, 1.0, -15.0)])
def test_join(normalize: bool, power: float, score: float) -> None:
    """The separator stands where the first part ended, with the score of that end."""
    one, two = hypothesis([5, 6], [-1.0, -2.0, -3.0]), hypothesis([7], [-4.0, -5.0])
    joined = join([(torch.tensor([8, 8, 8, 2]), one), (torch.tensor([8, 2]), two)], 9, normalize, power)
    assert joined["tokens"].tolist() == [5, 6, 9, 7, 2]
    assert joined["positional_scores"].tolist() == [-1, -2, -3, -4, -5]
    assert joined["score"] == pytest.approx(score)
    assert joined["attention"].numel() == joined["alignment"].numel() == 0
