"""Padding: which tokens of a batch are none, and how sentences are brought to begin at the first place.

Shapes: B sentences, padded to n tokens.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.memo import is_compiling, remembered


class Padding(NamedTuple):
    """Where the tokens of padded sentences are, once their padding is on the right."""

    mask: Tensor
    """(B, n), true at padded positions."""
    lengths: Tensor
    """Tokens of each sentence, (B,)."""
    known_lengths: tuple[int, ...] | None
    """The lengths as Python numbers; None while torch.compile is tracing, which cannot wait for the device."""
    order: Tensor | None
    """The order that moved padding to the right, (B, n); None where all padding was there already."""
    places: Tensor | None
    """Where `order` moved each token, (B, n), which undoes it; None where it moved none."""

    def put_right(self, x: Tensor) -> Tensor:
        """Moves the padding of `x` (n, B, D) to the right, and sets it to zero."""
        if self.order is not None:
            x = x.gather(0, self.order.t()[:, :, None].expand_as(x))
        return x.masked_fill(self.mask.t()[:, :, None], 0.0)

    def put_back(self, x: Tensor) -> Tensor:
        """Moves the rows of `x` (n, B, D) to the places where they were before."""
        return x if self.places is None else x.gather(0, self.places.t()[:, :, None].expand_as(x))


@remembered
def padding_of(mask: Tensor) -> Padding | None:
    """The padding that a mask (B, n), true at padded positions, stands for; None where it masks nothing.

    All layers get the same mask, so that a forward pass waits for the device here once. While torch.compile is
    tracing, padding that is not on the right ends the program.
    """
    mask = mask.bool()
    lengths = mask.size(1) - mask.sum(1)
    before_a_token = (mask[:, :-1] & ~mask[:, 1:]).any(1)
    beyond = torch.arange(mask.size(1), device=mask.device) >= lengths[:, None]
    if is_compiling():
        torch._assert_async(~before_a_token.any(), "padding that is not on the right cannot be compiled")
        return Padding(beyond, lengths, None, None, None)
    known, moved = torch.stack([lengths, before_a_token]).tolist()
    if not known or min(known) == mask.size(1):
        return None
    if not any(moved):
        return Padding(beyond, lengths, tuple(known), None, None)
    order = mask.byte().argsort(dim=1, stable=True)
    return Padding(beyond, lengths, tuple(known), order, order.argsort(1))


class Places(NamedTuple):
    """Where the keys of a call stood before their padding was moved, so that attention weights can be put back."""

    tokens: int
    """n, the padded length of the keys."""
    lengths: Tensor | None
    """Tokens of each sentence, (B,); None where all have n."""
    order: Tensor | None
    """The order that moved padding to the right, (B, n); None where all padding was there already."""

    @classmethod
    def of(cls, tokens: int, padding: Padding | None) -> "Places":
        """The places of keys with their padding."""
        return cls(tokens, *((None, None) if padding is None else (padding.lengths, padding.order)))

    def rows(self, kept: Tensor) -> "Places":
        """The places of some of the sentences, by their numbers."""
        lengths, order = (None if x is None else x.index_select(0, kept) for x in self[1:])
        return Places(self.tokens, lengths, order)

    def in_source_order(self, weights: Tensor) -> Tensor:
        """Moves weights (B, H, T, up to n) to where their tokens stood, and sets the weights of padding to zero."""
        if self.lengths is not None:
            padding = torch.arange(weights.size(3), device=weights.device) >= self.lengths[:, None]
            weights = weights.masked_fill(padding[:, None, None], 0.0)
        weights = F.pad(weights, (0, self.tokens - weights.size(3)))
        if self.order is None:
            return weights
        return torch.zeros_like(weights).scatter(3, self.order[:, None, None].expand_as(weights), weights)
