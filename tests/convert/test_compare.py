"""Sums over sentences of how far predictions moved, by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.convert.compare import BATCH_TOKENS, OutputDrift, batches
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.trained import Split


def test_sums_over_two_sentences() -> None:
    before = torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]).log()
    after = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.6, 0.3]]).log()
    drift = OutputDrift(Bucket(1, 8))
    drift.add(before, after, torch.tensor([0, 1]))
    drift.add(before[:1], after[:1], torch.tensor([2]))
    assert (drift.sentences, drift.tokens, drift.agreements) == (2, 3, 1)
    assert drift.loss_before == pytest.approx(-math.log(0.5 * 0.8 * 0.25))
    assert drift.loss == pytest.approx(-math.log(0.25 * 0.6 * 0.25))
    # from the trained model: 0.5 ln(0.5 / 0.25) + 0.25 ln(0.25 / 0.5) twice, and the other row once
    divergence = 2 * 0.25 * math.log(2) + 0.8 * math.log(0.8 / 0.6) + 0.1 * math.log(0.1 / 0.3)
    assert drift.divergence == pytest.approx(divergence, abs=1e-6)
    assert drift.farthest == pytest.approx(math.log(2), abs=1e-6)


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
