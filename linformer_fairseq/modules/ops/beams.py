"""The h hypotheses of a beam, which share their sentence.

fairseq's search repeats every sentence h times, one copy after the other, and drops all copies of one at once.
Attention keeps one copy, and treats the hypotheses of a sentence as h times as many queries of it.

Shapes: T queries, n tokens, B sentences, C the model width.
"""

from typing import NamedTuple

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


class Descent(NamedTuple):
    """Which hypotheses have become one another's copies since they had a row each, and share one of U rows now.

    Whatever their rows hold is read once for all of them, with the query of each as one of several of its row.
    """

    rows: Tensor
    """The row of each hypothesis, (B h,)."""
    slots: Tensor
    """The place of each hypothesis among `most` times U, (B h,): the first of every row, then the second ones."""
    number: int
    """U."""
    most: int
    """The hypotheses of a row, at most."""

    def folded(self, query: Tensor) -> Tensor:
        """The queries of each row, (1, B h, ...) to (most, U, ...); zeros where a row has fewer."""
        places = query.new_zeros(self.most * self.number, *query.shape[2:])
        return places.index_copy_(0, self.slots, query[0]).unflatten(0, (self.most, self.number))

    def unfolded(self, x: Tensor) -> Tensor:
        """What is of each hypothesis in what rows have for all of theirs, (U, H, most, ...) to (B h, H, 1, ...)."""
        return x.movedim(2, 0).flatten(0, 1).index_select(0, self.slots).unsqueeze(2)

    def sentences(self, hypotheses: int) -> Tensor:
        """The sentence of each row, (U,), where each has h hypotheses."""
        every = torch.arange(len(self.rows), device=self.rows.device) // hypotheses
        return self.rows.new_zeros(self.number).scatter_(0, self.rows, every)


def descend(rows: Tensor) -> tuple[Tensor, Descent]:
    """The rows that are still needed, (U,), and who shares them.

    This waits for the device.

    Args:
        rows: of each hypothesis, (B h,).
    """
    kept, rows, counts = rows.unique(return_inverse=True, return_counts=True)
    before = (rows[:, None] == torch.arange(len(kept), device=rows.device)).cumsum(0).gather(1, rows[:, None])
    return kept, Descent(rows, (before.squeeze(1) - 1) * len(kept) + rows, len(kept), int(counts.max()))
