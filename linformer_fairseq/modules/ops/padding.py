"""Padding: which tokens of a batch are none, and how sentences are brought to begin at the first place.

Shapes: B sentences, padded to n tokens.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.memo import is_compiling, remembered


class Padding(NamedTuple):
    """Where padded sentences have their tokens, as they come and once padding is on the right."""

    tokens: Tensor
    """True at tokens as sentences come, (B, n)."""
    mask: Tensor
    """True at padded positions once these are on the right, (B, n)."""
    lengths: Tensor
    """Tokens of each sentence, (B,)."""
    known_lengths: tuple[int, ...] | None
    """The lengths as Python numbers; None while torch.compile is tracing, which cannot wait for the device."""
    order: Tensor | None
    """The order that moved padding to the right, (B, n); None where all padding was there already."""
    places: Tensor | None
    """Where `order` moved each token, (B, n), which undoes it; None where it moved none."""

    def seen(self) -> Tensor:
        """True at tokens as sentences come, (B, 1, 1, n), and everywhere in a sentence that has none, so that queries
        attend to something."""
        seen = self.tokens
        if self.known_lengths is None or 0 in self.known_lengths:
            seen = seen | (self.lengths == 0)[:, None]
        return seen[:, None, None]

    def refuse_before_a_token(self, name: str) -> None:
        """Refuses padding that is not on the right; while torch.compile is tracing, it ends the program.

        Args:
            name: of the attention that does not support it.

        Raises:
            ValueError: padding before a token.
        """
        sentence = f"{name} supports padding on the right only: move that before a token behind it"
        if is_compiling():
            torch._assert_async((self.tokens != self.mask).all(), sentence)
        elif self.order is not None:
            raise ValueError(sentence)

    def put_right(self, x: Tensor) -> Tensor:
        """Moves the padding of `x` (n, B, D) to the right, and sets it to zero."""
        return _moved(x, self.order).masked_fill(self.mask.t()[:, :, None], 0.0)

    def put_back(self, x: Tensor) -> Tensor:
        """Moves the rows of `x` (n, B, D) to the places where they were before."""
        return _moved(x, self.places)


def _moved(x: Tensor, order: Tensor | None) -> Tensor:
    """The rows of `x` (n, B, D) in an order of each sentence, (B, n)."""
    return x if order is None else x.gather(0, order.t()[:, :, None].expand_as(x))


@remembered
def padding_of(mask: Tensor) -> Padding | None:
    """The padding that a mask (B, n), true at padded positions, stands for; None where it masks nothing.

    All layers get the same mask, so that a forward pass waits for the device here once. While torch.compile is
    tracing, which cannot wait, it is moved wherever it is.
    """
    tokens = ~mask.bool()
    lengths, known = tokens.sum(1), None
    beyond = torch.arange(mask.size(1), device=mask.device) >= lengths[:, None]
    if not is_compiling():
        *numbers, moved = torch.cat([lengths, (beyond == tokens).any()[None]]).tolist()
        if min(numbers, default=mask.size(1)) == mask.size(1):
            return None
        known = tuple(numbers)
        if not moved:
            return Padding(tokens, beyond, lengths, known, None, None)
    order = mask.byte().argsort(dim=1, stable=True)
    return Padding(tokens, beyond, lengths, known, order, order.argsort(1))


class Places(NamedTuple):
    """Where the keys of a call stood before their padding was moved, so that attention weights can be put back."""

    tokens: int
    """n, the padded length of the keys."""
    mask: Tensor | None
    """True at padded positions once these were moved, (B, n); None where there are none."""
    order: Tensor | None
    """The order that moved them, (B, n); None where they were not moved."""

    @classmethod
    def of(cls, tokens: int, padding: Padding | None, moved: bool = True) -> "Places":
        """The places of keys with their padding, which may have been left where it is."""
        if padding is None:
            return cls(tokens, None, None)
        return cls(tokens, padding.mask, padding.order) if moved else cls(tokens, ~padding.tokens, None)

    def rows(self, kept: Tensor) -> "Places":
        """The places of some of the sentences, by their numbers."""
        return Places(self.tokens, *(None if x is None else x.index_select(0, kept) for x in (self.mask, self.order)))

    def in_source_order(self, weights: Tensor) -> Tensor:
        """Moves weights (B, H, T, up to n) to where their tokens stood, and sets the weights of padding to zero."""
        if self.mask is not None:
            weights = weights.masked_fill(self.mask[:, None, None, : weights.size(3)], 0.0)
        if weights.size(3) < self.tokens:
            weights = F.pad(weights, (0, self.tokens - weights.size(3)))
        if self.order is None:
            return weights
        return torch.zeros_like(weights).scatter(3, self.order[:, None, None].expand_as(weights), weights)
