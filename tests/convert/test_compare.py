"""The sums over sentences of how far predictions moved equal those computed by hand."""

import math

import pytest
import torch

from linformer_fairseq.convert.compare import OutputDrift
from linformer_fairseq.length_buckets import Bucket


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
