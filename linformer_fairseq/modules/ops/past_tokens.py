"""The keys and values that a search keeps of the tokens so far."""

from typing import NamedTuple

import torch
from torch import Tensor


class PastTokens(NamedTuple):
    """The keys and values of n tokens of B hypotheses.

    A new order of hypotheses is only noted, and the next token copies keys and values in that order: once, not once for
    the order and once to make room, as a copy takes as much time as the attention.
    """

    keys: Tensor  # (B, H, n, d)
    values: Tensor  # (B, H, n, d)
    order: Tensor | None = None  # in which their hypotheses are taken, (B,); None where they stay

    def with_tokens(self, keys: Tensor, values: Tensor) -> "PastTokens":
        """These tokens, in the order that was noted, and some more, (B, H, T, d)."""
        return PastTokens(_appended(self.keys, self.order, keys), _appended(self.values, self.order, values))

    def reordered(self, order: Tensor) -> "PastTokens":
        """Notes a new order of hypotheses."""
        return self._replace(order=order if self.order is None else self.order.index_select(0, order))


def _appended(past: Tensor, order: Tensor | None, own: Tensor) -> Tensor:
    """Keys or values (B, H, n, d) in an order of hypotheses, with those of some more tokens after them."""
    # what is written into a part of a tensor has no gradient
    if order is None or torch.is_grad_enabled() or past.dtype != own.dtype:
        return torch.cat([past if order is None else past.index_select(0, order), own], 2)
    n, (batch, heads, added, width) = past.size(2), own.shape
    every = own.new_empty(batch, heads, n + added, width)
    torch.index_select(past, 0, order, out=every.narrow(2, 0, n))
    every.narrow(2, n, added).copy_(own)
    return every
