"""Statistics of the singular values σ₁ ≥ σ₂ ≥ ... of attention maps, and of the rank that they suggest.

cumulative     (σ₁ + ... + σ_r) / (σ₁ + σ₂ + ...)        what the paper's Figure 1 shows
energy         (σ₁² + ... + σ_r²) / (σ₁² + σ₂² + ...)    1 minus the squared relative error of the best matrix of
                                                         rank r (Eckart and Young, 1936)
"""

from collections.abc import Sequence

import torch
from torch import Tensor

BINS = 200
"""The number of bins from 0 to 1 in the histograms of cumulative spectra."""


def singular_values(maps: Tensor) -> Tensor:
    """Returns the singular values of matrices (..., T, n) in descending order, (..., min(T, n)), in float64."""
    return torch.linalg.svdvals(maps.double())


def cumulative(values: Tensor) -> Tensor:
    """Returns the normalised cumulative spectrum, (..., r), of singular values (..., r)."""
    sums = values.cumsum(-1)
    return sums / sums[..., -1:]


def rank_holding(values: Tensor, energy: float) -> Tensor:
    """Returns the smallest rank that holds a share `energy` of all energy, (...), for singular values (..., r)."""
    enough = cumulative(values.square()) >= energy - 1e-9  # a map whose values end there exactly needs no more
    return enough.int().argmax(-1) + 1


class Statistics:
    """The spectra of the maps of one place in one bucket of lengths, in memory that does not grow with their number.

    Args:
        layers, heads: L and H.
        longest: R, the highest rank that a map can have.
        energy: share of a map's energy that its rank has to hold.
    """

    def __init__(self, layers: int, heads: int, longest: int, energy: float) -> None:
        self.energy = energy
        self.sentences = 0
        self.tokens = 0
        self._cumulative = torch.zeros(layers, heads, longest, dtype=torch.float64)
        self._histogram = torch.zeros(longest, BINS, dtype=torch.int64)
        self.rank_counts = torch.zeros(layers, heads, longest + 1, dtype=torch.int64)
        """How many sentences have each rank, (L, H, R + 1)."""

    def add(self, maps: Sequence[Tensor]) -> None:
        """Adds the maps of one sentence, (H, T, n) of each layer."""
        values = torch.stack([singular_values(of_layer) for of_layer in maps])  # of one at a time, as they may be large
        curves = cumulative(values).cpu()
        rank, longest = curves.size(-1), self._cumulative.size(-1)
        curves = torch.cat([curves, curves.new_ones(*curves.shape[:2], longest - rank)], -1)
        self.sentences += 1
        self.tokens += maps[0].size(-1)
        self._cumulative += curves
        bins = (curves.flatten(0, 1) * BINS).long().clamp(max=BINS - 1).t()  # (R, L H)
        self._histogram.scatter_add_(1, bins, torch.ones_like(bins))
        ranks = rank_holding(values, self.energy).cpu()[..., None]
        self.rank_counts.scatter_add_(2, ranks, torch.ones_like(ranks))

    def curve(self) -> Tensor:
        """Returns the mean normalised cumulative spectrum of every layer and head, (L, H, R)."""
        return self._cumulative / self.sentences

    def curve_quantile(self, share: float) -> Tensor:
        """Returns the quantile of the cumulative spectra of all maps at every rank, (R,), to the width of a bin."""
        below = self._histogram.cumsum(1).double() / self._histogram.sum(1, keepdim=True)
        return ((below >= share).int().argmax(1) + 1).double() / BINS

    def mean_length(self) -> float:
        """Returns the mean length of the sentences in tokens."""
        return self.tokens / self.sentences

    def mean_rank(self) -> Tensor:
        """Returns the mean over sentences of the rank that holds the energy, (L, H)."""
        ranks = torch.arange(self.rank_counts.size(-1), dtype=torch.float64)
        return (self.rank_counts * ranks).sum(-1) / self.sentences


def rank_quantile(counts: Tensor, share: float) -> int:
    """Returns the smallest rank that suffices for a share of all maps, given the counts of each rank, (..., R + 1)."""
    totals = counts.flatten(0, -2).sum(0)
    enough = totals.cumsum(0) >= share * totals.sum()
    return int(enough.int().argmax())
