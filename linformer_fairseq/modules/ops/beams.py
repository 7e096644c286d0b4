"""The h hypotheses of a beam, which share one row of what is kept of their sentence.

They stand side by side, come and go together, and count as h times as many queries of the sentence.

Shapes: T queries, n tokens, B sentences, H heads, d features of a head.
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
    """Moves them back in what is computed of them, (B, H, T h, ...) to (B h, H, T, ...)."""
    if hypotheses == 1:
        return out
    return out.unflatten(2, (-1, hypotheses)).movedim(3, 1).flatten(0, 1)
