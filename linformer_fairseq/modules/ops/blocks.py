"""Blocks of neighbouring tokens, the last one filled with zeros."""

import torch.nn.functional as F
from torch import Tensor


def in_blocks(x: Tensor, block: int, dim: int) -> Tensor:
    """Cuts dimension `dim` >= 0 of `x` into blocks, (..., T, ...) to (..., m, q, ...)."""
    missing = -x.size(dim) % block
    if missing:
        x = F.pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, missing))
    return x.unflatten(dim, (-1, block))


def to_blocks(x: Tensor, block: int) -> Tensor:
    """Cuts tokens (..., T, d) into blocks, (m, ..., q, d)."""
    return in_blocks(x, block, x.dim() - 2).movedim(-3, 0)


def from_blocks(x: Tensor, tokens: int) -> Tensor:
    """Undoes `to_blocks`: (m, ..., q, d) to (..., T, d)."""
    x = x.movedim(-2, 1).flatten(0, 1)
    x = x if len(x) == tokens else x[:tokens]  # a slice's gradient is one more copy
    return x.movedim(0, -2)
