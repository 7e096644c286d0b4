"""Entropy of attention maps."""

import math

import torch

from linformer_fairseq.quality.entropy import row_entropy


def test_known_entropies() -> None:
    maps = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    torch.testing.assert_close(row_entropy(maps), torch.tensor([math.log(4), 0.0, math.log(2)]))


def test_negative_weights_count_by_their_size() -> None:
    torch.testing.assert_close(row_entropy(torch.tensor([[2.0, -2.0]])), torch.tensor([math.log(2)]))
