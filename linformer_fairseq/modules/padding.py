"""Padding masks, (B, n) and true where a sentence has ended."""

import torch
from torch import Tensor


def lengths(mask: Tensor) -> Tensor:
    """Tokens of each sentence, (B,), by its mask (B, n)."""
    return mask.size(1) - mask.sum(1)


def no_padding(key: Tensor) -> Tensor:
    """The mask (B, n) of keys (n, B, C) that are all tokens."""
    return torch.zeros(key.size(1), key.size(0), dtype=torch.bool, device=key.device)


def clear_padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """`x` (n, B, C) with zeros where its mask (B, n) is true."""
    return x if mask is None else x.masked_fill(mask.t()[:, :, None], 0.0)
