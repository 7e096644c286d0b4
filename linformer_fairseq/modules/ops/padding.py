"""Padding masks, (B, n) and true where a sentence has ended."""

import torch
from torch import Tensor


def sentence_lengths(mask: Tensor) -> Tensor:
    """The number of tokens of each sentence, (B,), by its padding mask (B, n)."""
    return mask.size(1) - mask.sum(1)


def no_padding(key: Tensor) -> Tensor:
    """The padding mask (B, n) of keys (n, B, C) without any padding."""
    return torch.zeros(key.size(1), key.size(0), dtype=torch.bool, device=key.device)


def clear_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` (n, B, C) with zeros at padded positions, where its mask (B, n) is true."""
    return x if mask is None else x.masked_fill(mask.t()[:, :, None], 0.0)
