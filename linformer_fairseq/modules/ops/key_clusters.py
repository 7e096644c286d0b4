"""Clusters of similar keys, for attention to their means.

The keys of a sentence are halved along the feature in which they vary most, each half along its own, and so on, until
there are s clusters: the leaves of a k-d tree (Friedman, Bentley and Finkel, 1977). They are equally large, but for one
token, whatever the keys are. Only comparisons decide, so that there is no gradient through the choice, and the clusters
of a sentence do not depend on the padding after it.

To a query a cluster stands for its tokens by their mean, hence the logarithm of its size m in scores (Bolya et al.,
2023, equation 1).

Shapes: n tokens, B the batch, H heads, d features per head, s clusters, a power of two, each with w places for tokens.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from linformer_fairseq.modules.ops.blocks import in_blocks
from linformer_fairseq.modules.ops.precision import at_least_float32

FEATURES = 8  # features of a head that are looked at, those in which keys vary most, as each costs time


class Clusters(NamedTuple):
    """Which tokens are in which cluster, for each head of each sentence."""

    order: Tensor
    """The tokens of each cluster, one cluster after the other, (B, H, s w). Places that no token needs have positions
    beyond the sentence's end, which may be n or more."""
    sizes: Tensor | None  # tokens of each cluster, (B, s); None where all have w
    number: int  # s

    @classmethod
    @torch.no_grad()
    def of(cls, keys: Tensor, lengths: Tensor | None, count: int) -> "Clusters":
        """Clusters keys.

        Args:
            keys: (B, H, n, d), zero beyond a sentence's end.
            lengths: tokens of each sentence (B,), at least 1; None where all have n.
            count: s, at most: there are fewer where n tokens need no more.
        """
        n = keys.size(2)
        count = min(count, 1 << max(0, n - 1).bit_length())
        if lengths is None and n % count:
            lengths = torch.full((len(keys),), n, device=keys.device)
        features = _features(keys, lengths)
        return cls(*_halved(in_blocks(features, count, 2).flatten(2, 3), lengths, count), count)

    def labels(self, places: int) -> Tensor:
        """The cluster of each of so many tokens, (B, H, places); those beyond a sentence's end have any."""
        width = self.order.size(2) // self.number
        own = torch.arange(self.order.size(2), device=self.order.device).div(width, rounding_mode="floor")
        found = own.new_zeros(*self.order.shape[:2], max(places, self.order.size(2)))
        return found.scatter_(2, self.order, own.expand_as(self.order))[..., :places]

    def means(self, x: Tensor) -> Tensor:
        """The mean of each cluster, (B, H, s, d), of what its tokens have in `x` (B, H, n, d), zero like the keys."""
        rows = _rows(in_blocks(x, self.number, 2).flatten(2, 3), self.order).unflatten(2, (self.number, -1))
        sizes = rows.size(3) if self.sizes is None else self.sizes.clamp(min=1)[:, None, :, None]
        return (rows.sum(3, dtype=at_least_float32(x.dtype)) / sizes).to(x.dtype)

    def biases(self, dtype: torch.dtype) -> Tensor | None:
        """What is added to the scores of clusters, (B, 1, 1, s): log m less its largest in the sentence, which
        changes no softmax and leaves half precision small numbers to hold; None where it is 0."""
        if self.sizes is None:
            return None
        sizes = self.sizes.to(at_least_float32(dtype))
        return (sizes / sizes.amax(1, keepdim=True)).log()[:, None, None].to(dtype)

    def spread(self, probabilities: Tensor, tokens: int) -> Tensor:
        """Shares what clusters get, (B, H, T, s), evenly among their tokens, (B, H, T, n). What is beyond a sentence's
        end is of no meaning."""
        width = self.order.size(2) // self.number
        sizes = width if self.sizes is None else self.sizes.clamp(min=1)[:, None, None]
        each = (probabilities / sizes).repeat_interleave(width, 3)
        return torch.empty_like(each).scatter(3, self.order[:, :, None].expand_as(each), each)[..., :tokens]


def largest_power_of_two(most: int) -> int:
    """The largest power of two that is not above `most`, which is 1 or more."""
    return 1 << (most.bit_length() - 1)


def _features(keys: Tensor, lengths: Tensor | None) -> Tensor:
    """The keys less their mean in the sentence, in the features in which they vary most, (B, H, n, f); zero beyond the
    sentence's end, like the keys."""
    keys = keys.to(at_least_float32(keys.dtype))
    keys = keys - keys.sum(2, keepdim=True) / (keys.size(2) if lengths is None else lengths[:, None, None, None])
    if lengths is not None:
        beyond = torch.arange(keys.size(2), device=keys.device) >= lengths[:, None]
        keys = keys.masked_fill(beyond[:, None, :, None], 0.0)
    if keys.size(3) <= FEATURES:
        return keys
    most = keys.square().sum(2, keepdim=True).topk(FEATURES, 3).indices
    return keys.gather(3, most.expand(-1, -1, keys.size(2), -1))


def _halved(x: Tensor, lengths: Tensor | None, count: int) -> tuple[Tensor, Tensor | None]:
    """The order and the sizes of `Clusters`.

    Args:
        x: (B, H, s w, f), zero beyond a sentence's end.
    """
    batch, heads, places, _ = x.shape
    order = torch.arange(places, device=x.device).expand(batch, heads, -1)
    sizes = None if lengths is None else lengths[:, None]  # tokens of each group, which come first in it
    groups = 1
    while groups < count:
        x = x.unflatten(2, (groups, -1))
        value = x.gather(4, _widest(x, sizes).expand(-1, -1, -1, x.size(3), -1)).squeeze(4)
        if sizes is None:
            halves = value.argsort(dim=3, stable=True)  # padding must not change which of equal tokens comes first
        else:
            own = torch.arange(x.size(3), device=x.device)
            value = value.masked_fill((own >= sizes[:, :, None])[:, None], torch.inf)
            halves = value.argsort(dim=3, stable=True)
            own, sizes = _split(own, sizes)
            halves = halves.gather(3, own[:, None].expand_as(halves))
        halves = (halves + torch.arange(0, places, places // groups, device=x.device)[:, None]).flatten(2)
        order, groups = order.gather(2, halves), 2 * groups
        if groups < count:
            x = _rows(x.flatten(2, 3), halves)
    return order, sizes


def _widest(x: Tensor, sizes: Tensor | None) -> Tensor:
    """The feature in which the tokens of a group vary most, (B, H, groups, 1, 1), for `x` (B, H, groups, places, f)."""
    tokens = x.size(3) if sizes is None else sizes.clamp(min=1)[:, None, :, None]
    variance = x.square().sum(3) / tokens - (x.sum(3) / tokens).square()
    return variance.argmax(3)[..., None, None]


def _split(places: Tensor, sizes: Tensor) -> tuple[Tensor, Tensor]:
    """Splits groups into two halves of nearly equal size, so that the tokens of a half come first in it, as those of a
    group do: the place in the group from which each place of the halves is filled, (B, groups, places), and the sizes
    of the halves."""
    half = places[: len(places) // 2]
    tokens = sizes[:, :, None]
    left = (tokens + 1) // 2
    of_left = torch.where(half < left, half, half + tokens - left)
    of_right = torch.where(half < tokens - left, half + left, half + len(half))
    return torch.cat([of_left, of_right], 2), torch.cat([left, tokens - left], 2).flatten(1)


def _rows(x: Tensor, order: Tensor) -> Tensor:
    """The rows `order` (B, H, m) of `x` (B, H, n, d): (B, H, m, d)."""
    n, features = x.shape[2:]
    firsts = torch.arange(0, x.size(0) * x.size(1) * n, n, device=x.device).view(*x.shape[:2], 1)
    index = (order + firsts).flatten()[:, None].expand(-1, features)  # the form that torch gathers fastest
    return x.reshape(-1, features).gather(0, index).view(*order.shape, features)
