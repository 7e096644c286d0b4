"""The h hypotheses of a beam, which share their sentence: fairseq's search gives it h times over, one after the other.

Attention keeps it once, and takes the hypotheses of a sentence for h times as many queries of it.

Shapes: T queries, n tokens, B sentences, C the model width.
"""

import torch
from torch import Tensor


def once_a_sentence(x: Tensor, hypotheses: int, dim: int) -> Tensor:
    """`x` with B places along `dim` for B h, if all hypotheses of every sentence have the same there; else `x`."""
    first = x.movedim(dim, 0)[::hypotheses].movedim(0, dim)
    return first if torch.equal(first.repeat_interleave(hypotheses, dim), x) else x


def side_by_side(query: Tensor, hypotheses: int) -> Tensor:
    """The hypotheses of a sentence as queries of one row: (T, B h, C) to (T h, B, C)."""
    return query if hypotheses == 1 else query.unflatten(1, (-1, hypotheses)).transpose(1, 2).flatten(0, 1)


def apart(out: Tensor, hypotheses: int) -> Tensor:
    """(T h, B, C) back to (T, B h, C)."""
    return out if hypotheses == 1 else out.unflatten(0, (-1, hypotheses)).transpose(1, 2).flatten(1, 2)


def weights_apart(weights: Tensor, hypotheses: int) -> Tensor:
    """(..., B, T h, n) to (..., B h, T, n)."""
    return weights if hypotheses == 1 else weights.unflatten(-2, (-1, hypotheses)).transpose(-3, -2).flatten(-4, -3)
