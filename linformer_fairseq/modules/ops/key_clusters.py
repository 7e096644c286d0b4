"""Clusters of similar keys, for attention to their means.

The keys of a sentence are split into groups, and these again, until there are s clusters: the leaves of a k-d tree
(Friedman, Bentley and Finkel, 1977), of which one sort makes several levels. A group that becomes 2^b groups puts its
tokens in order by the b features in which they vary most: tokens below its mean in the first feature come before those
above, each of these halves is put in order by the second feature in the same way, and so on, and in the end by the
values of the last feature. Every second half is reversed, as a folded strip of paper is, so that neighbours in this
order are alike. The order of all groups is then cut into equal parts.

So clusters are equally large, but for one token, whatever the keys are. There is no gradient through the choice, and
the clusters of a sentence do not depend on the padding after it.

To a query a cluster stands for its tokens by their mean, hence the logarithm of its size m in scores (Bolya et al.,
2023, equation 1).

Shapes: n tokens, B the batch, H heads, d features per head, s clusters, a power of two.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.precision import at_least_float32

SORTS = 3  # fewer would take less time, and give clusters that are less alike


class Clusters(NamedTuple):
    """Which tokens are in which cluster, for each head of each sentence."""

    order: Tensor
    """The tokens of each cluster, one after the other, for each sentence of each head, (H B n,), as rows of keys
    (n B H, d). What is beyond a sentence's end comes last in it."""
    starts: Tensor
    """Where in this order each cluster begins, and a sentence's padding where there may be any, (H, B, s or s + 1)."""
    sizes: Tensor | None  # tokens of each cluster, (B, s); None where all have as many

    @classmethod
    @torch.no_grad()
    def of(cls, keys: Tensor, lengths: Tensor | None, count: int) -> "Clusters":
        """Clusters keys.

        Args:
            keys: (n, B, H, d); what is beyond a sentence's end is of no meaning.
            lengths: tokens of each sentence (B,); None where all have n.
            count: s, at most: there are fewer where n tokens need no more.
        """
        n, batch, heads, features = keys.shape
        levels = min(count, 1 << max(0, n - 1).bit_length()).bit_length() - 1
        count, device = 1 << levels, keys.device
        x, padded = keys.to(at_least_float32(keys.dtype)), lengths is not None or n % count != 0
        firsts = torch.arange(0, heads * batch * n, n, device=device).view(heads, batch, 1)
        if padded:  # padding is in as many parts as there are clusters, so that they are halved alike
            ends = lengths.clamp(min=1)[:, None] if lengths is not None else torch.full((batch, 1), n, device=device)
            beyond = torch.arange(n, device=device)[:, None] >= ends.t()
            x = torch.where(beyond[:, :, None, None], x[:1], x)
            starts = (torch.arange(2 * count, device=device) * ends // count).clamp(max=n) + firsts
        else:
            starts = torch.arange(0, n, n // count, device=device) + firsts
        x = (x - x.amin(0)).flatten(0, 2)  # not negative, so that as integers their bits are in order
        squares, order, cuts = x.square(), torch.arange(len(x), device=device), starts.flatten()
        parts = torch.bucketize(order, cuts[1:], right=True)  # of all places in the order
        order = order.view(n, batch, heads).permute(2, 1, 0).flatten()
        for halvings in [(levels + i) // SORTS for i in range(SORTS - 1, -1, -1) if levels + i >= SORTS]:
            group, group_starts = parts // count, cuts[::count].contiguous()
            means = F.embedding_bag(order, x, group_starts, mode="mean")
            variances = F.embedding_bag(order, squares, group_starts, mode="mean").addcmul_(means, means, value=-1)
            widest = variances.topk(min(halvings, features)).indices
            values = x.take(widest.index_select(0, group).add_(order[:, None], alpha=features))
            above = values > means.gather(1, widest).index_select(0, group)
            place = torch.add(values[:, -1].float().view(torch.int32), group, alpha=1 << 30 + halvings)
            for i in range(1, values.size(1)):
                place ^= above[:, -1 - i] * ((1 << 31 + i) - 1)
            order = order.index_select(0, place.argsort(stable=True))  # equal keys stay in the order of the text
            count >>= halvings
        if not padded:
            return cls(order, starts, None)
        starts = starts[..., : (1 << levels) + 1]
        return cls(order, starts, starts[0].diff())

    def tokens(self) -> tuple[Tensor, Tensor | None]:
        """The tokens of each cluster, (B, H, s, l), and where a cluster has so many, (B, H or 1, s, l); None where all
        have l."""
        heads, batch, _ = self.starts.shape
        number, n = self.number, len(self.order) // (heads * batch)
        each = torch.arange(-(-n // number), device=self.order.device)
        places = self.starts[:, :, :number, None] + each
        tokens = self.order[places.clamp(max=len(self.order) - 1)] // (batch * heads)
        within = None if self.sizes is None else (each < self.sizes[..., None])[:, None]
        return tokens.transpose(0, 1), within

    def labels(self) -> Tensor:
        """The cluster of each token, (B, H, n); what is beyond a sentence's end has any."""
        heads, batch, _ = self.starts.shape
        tokens = self.order.view(heads, batch, -1).transpose(0, 1) // (batch * heads)
        return _labels(tokens, self.counts()[:, 0])

    @property
    def number(self) -> int:
        """The number of clusters, s."""
        return self.starts.size(2) if self.sizes is None else self.sizes.size(1)

    def counts(self) -> Tensor:
        """The tokens of each cluster, (B, 1, s)."""
        heads, batch, number = self.starts.shape
        if self.sizes is None:
            return self.starts.new_full((batch, 1, number), len(self.order) // (heads * batch * number))
        return self.sizes[:, None]

    def means(self, x: Tensor) -> Tensor:
        """The mean of each cluster, (H, B, s, D), of what its tokens have in `x`, (n, B, H, D), or (n, B, D) where all
        heads have the same."""
        rows = self.order if x.dim() == 4 else self.order // len(self.starts)
        numbers = x.flatten(0, -2).to(at_least_float32(x.dtype))
        means = F.embedding_bag(rows, numbers, self.starts.flatten(), mode="mean").to(x.dtype)
        means = means.unflatten(0, self.starts.shape)
        return means[:, :, : self.number]

    def biases(self, dtype: torch.dtype) -> Tensor | None:
        """What is added to the scores of clusters, (B, 1, 1, s): log m less its largest in the sentence, which
        changes no softmax and leaves half precision small numbers to hold; None where it is 0."""
        if self.sizes is None:
            return None
        sizes = self.sizes.to(at_least_float32(dtype))
        return (sizes / sizes.amax(1, keepdim=True)).log().to(dtype)[:, None, None]


def spread(probabilities: Tensor, tokens: Tensor, sizes: Tensor | None) -> Tensor:
    """Shares what clusters get, (B, H, T, s), evenly among their tokens.

    Args:
        tokens: those of each cluster, one cluster after the other, (B, H, n).
        sizes: tokens of each cluster, (B, s); None where all have as many.

    Returns:
        The weights of tokens (B, H, T, n). What is beyond a sentence's end is of no meaning.
    """
    clusters = probabilities.size(3)
    if sizes is None:
        sizes = tokens.new_full((len(tokens), clusters), tokens.size(2) // clusters)
    each = probabilities / sizes.clamp(min=1)[:, None, None]
    return each.gather(3, _labels(tokens, sizes)[:, :, None].expand(-1, -1, each.size(2), -1))


def _labels(tokens: Tensor, sizes: Tensor) -> Tensor:
    """The cluster of each token, (B, H, n), of tokens one cluster after the other, (B, H, n), and sizes (B, s)."""
    places = torch.arange(tokens.size(2), device=tokens.device).expand(len(tokens), -1).contiguous()
    own = torch.searchsorted(sizes.cumsum(1), places, right=True).clamp(max=sizes.size(1) - 1)
    return torch.empty_like(tokens).scatter(2, tokens, own[:, None].expand_as(tokens))


def largest_power_of_two(most: int) -> int:
    """The largest power of two that is not above `most`, which is 1 or more."""
    return 1 << (most.bit_length() - 1)
