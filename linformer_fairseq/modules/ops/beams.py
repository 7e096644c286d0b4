"""The hypotheses of a sentence in a search, side by side in a batch or as further queries of the sentence.

Shapes: B sentences with h hypotheses each, T queries, H heads, C features.
"""

import torch
from torch import Tensor


def kept_sentences(new_order: Tensor, hypotheses: int) -> Tensor:
    """The sentences that stay in a search, (B,), by the new order of its hypotheses, (B h,).

    Nothing waits for the check that all hypotheses of a sentence stay together: on a GPU it ends the program with a
    device-side assertion, as an index outside an embedding does.

    Raises:
        RuntimeError: hypotheses of several sentences in the places of one, on a processor.
    """
    beams = new_order.view(-1, hypotheses) // hypotheses
    if hypotheses > 1:
        together = (beams == beams[:, :1]).all()
        torch._assert_async(together, "the hypotheses of a sentence must stand side by side, and come and go together")
    return beams[:, 0]


def fold_beams(query: Tensor, hypotheses: int) -> Tensor:
    """Moves the hypotheses of a sentence into its queries: (T, B h, C) to (T h, B, C)."""
    return query if hypotheses == 1 else query.unflatten(1, (-1, hypotheses)).transpose(1, 2).flatten(0, 1)


def unfold_beams(out: Tensor, hypotheses: int) -> Tensor:
    """Undoes `fold_beams` in what is computed from its queries: (B, H, T h, ...) to (B h, H, T, ...)."""
    if hypotheses == 1:
        return out
    return out.unflatten(2, (-1, hypotheses)).movedim(3, 1).flatten(0, 1)
