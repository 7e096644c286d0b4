"""Sums over sentences of how far predictions moved, by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.convert.compare import BATCH_TOKENS, Moved, _add, batches
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.trained import Split


def test_sums_of_a_model_and_two_converted_ones() -> None:
    own = Moved(Bucket(1, 8), models=2)
    before = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]).log()
    moved = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]]).log()
    _add(own, before, [before, moved], torch.tensor([0, 1]))
    _add(own, before[:1], [before[:1], moved[:1]], torch.tensor([2]))
    assert (own.sentences, own.tokens) == (2, 3)
    assert own.loss == pytest.approx(-math.log(0.5 * 0.8 * 0.25))
    assert own.losses == pytest.approx([own.loss, -math.log(0.25 * 0.8 * 0.25)])
    # 0.5 ln(0.5 / 0.25) + 0.25 ln(0.25 / 0.5), twice
    assert own.divergences == pytest.approx([0.0, 2 * 0.25 * math.log(2)], abs=1e-6)
    assert own.agreements == [3, 1]
    assert own.farthest == pytest.approx([0.0, math.log(2)], abs=1e-6)


def test_divergence_is_from_the_model_as_it_was() -> None:
    """The other way round it would be 0.9 ln(0.9 / 0.5) + 0.1 ln(0.1 / 0.5)."""
    own = Moved(Bucket(1, 8), models=1)
    _add(own, torch.tensor([[0.5, 0.5]]).log(), [torch.tensor([[0.9, 0.1]]).log()], torch.tensor([0]))
    assert own.divergences == pytest.approx([0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)])


class Lengths:
    """Sentences that are their number of tokens."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def num_tokens(self, index: int) -> int:
        return self.lengths[index]


@given(st.lists(st.integers(1, 2 * BATCH_TOKENS), max_size=40))
def test_batches_hold_every_sentence_once_and_no_more_than_fits(lengths: list[int]) -> None:
    found = list(batches(Split(Lengths(lengths), list(range(len(lengths))))))
    assert sorted(index for batch in found for index in batch) == list(range(len(lengths)))
    for batch in found:
        assert len(batch) == 1 or len(batch) * max(lengths[index] for index in batch) <= BATCH_TOKENS
