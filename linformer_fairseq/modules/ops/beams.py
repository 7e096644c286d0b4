"""The h hypotheses of a beam, which share their sentence.

fairseq's search repeats every sentence h times, one copy after the other, and drops all copies of one at once.
Attention keeps one copy, and treats the hypotheses of a sentence as h times as many queries of it.

Shapes: T queries, n tokens, B sentences, C the model width.
"""

import torch
from torch import Tensor


def one_of_each_beam(rows: Tensor, hypotheses: int) -> Tensor:
    """The row that all hypotheses of a sentence have: (B h,) to (B,).

    Nothing waits for the comparison: rows that differ within a beam end a program on a GPU with a device-side
    assertion, as an index outside an embedding does.

    Raises:
        RuntimeError: rows that differ within a beam, on a processor.
    """
    beams = rows.view(-1, hypotheses)
    if hypotheses > 1:
        same = (beams == beams[:, :1]).all()
        torch._assert_async(same, "the hypotheses of a sentence must stand side by side, and come and go together")
    return beams[:, 0]


def fold_beams(query: Tensor, hypotheses: int) -> Tensor:
    """Moves the hypotheses of a sentence into its queries: (T, B h, C) to (T h, B, C)."""
    return query if hypotheses == 1 else query.unflatten(1, (-1, hypotheses)).transpose(1, 2).flatten(0, 1)


def unfold_beams(out: Tensor, hypotheses: int) -> Tensor:
    """Undoes `fold_beams`: (T h, B, C) to (T, B h, C)."""
    return out if hypotheses == 1 else out.unflatten(0, (-1, hypotheses)).transpose(1, 2).flatten(1, 2)


def unfold_beam_weights(weights: Tensor, hypotheses: int) -> Tensor:
    """The same for attention weights: (..., B, T h, n) to (..., B h, T, n)."""
    return weights if hypotheses == 1 else weights.unflatten(-2, (-1, hypotheses)).transpose(-3, -2).flatten(-4, -3)
