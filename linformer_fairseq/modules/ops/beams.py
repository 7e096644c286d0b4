"""The h hypotheses of a beam, which share their sentence.

fairseq's search repeats every sentence h times, one copy after the other. Attention keeps one copy, and treats the
hypotheses of a sentence as h times as many queries of it.

Shapes: T queries, n tokens, B sentences, C the model width.
"""

import torch
from torch import Tensor


def deduplicate_beams(x: Tensor, hypotheses: int, dim: int) -> Tensor:
    """Keeps one copy a sentence, B of the B h places along `dim`, where all copies are equal; otherwise returns `x`."""
    first = x.movedim(dim, 0)[::hypotheses].movedim(0, dim)
    return first if torch.equal(first.repeat_interleave(hypotheses, dim), x) else x


def fold_beams(query: Tensor, hypotheses: int) -> Tensor:
    """Moves the hypotheses of a sentence into its queries: (T, B h, C) to (T h, B, C)."""
    return query if hypotheses == 1 else query.unflatten(1, (-1, hypotheses)).transpose(1, 2).flatten(0, 1)


def unfold_beams(out: Tensor, hypotheses: int) -> Tensor:
    """Undoes `fold_beams`: (T h, B, C) to (T, B h, C)."""
    return out if hypotheses == 1 else out.unflatten(0, (-1, hypotheses)).transpose(1, 2).flatten(1, 2)


def unfold_beam_weights(weights: Tensor, hypotheses: int) -> Tensor:
    """The same for attention weights: (..., B, T h, n) to (..., B h, T, n)."""
    return weights if hypotheses == 1 else weights.unflatten(-2, (-1, hypotheses)).transpose(-3, -2).flatten(-4, -3)
