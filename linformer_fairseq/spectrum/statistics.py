"""Sums over the maps of many sentences, in memory that does not grow with their number."""

import torch
from torch import Tensor

from .singular_values import cumulative, rank_holding, singular_values

BINS = 200
"""How many bins, from 0 to 1, the histograms of cumulative spectra have."""


class Statistics:
    """The spectra of the maps of one place of attention in one bucket of lengths.

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
        self._ranks = torch.zeros(layers, heads, longest + 1, dtype=torch.int64)

    def add(self, maps: Tensor) -> None:
        """Adds the maps of one sentence, (L, H, T, n)."""
        values = singular_values(maps)
        curves = cumulative(values).cpu()
        rank, longest = curves.size(-1), self._cumulative.size(-1)
        curves = torch.cat([curves, curves.new_ones(*curves.shape[:2], longest - rank)], -1)
        self.sentences += 1
        self.tokens += maps.size(-1)
        self._cumulative += curves
        found = (curves.flatten(0, 1) * BINS).long().clamp(max=BINS - 1)  # (L H, R)
        self._histogram.scatter_add_(1, found.t(), torch.ones_like(found.t()))
        ranks = rank_holding(values, self.energy).cpu()
        self._ranks.scatter_add_(2, ranks[..., None], torch.ones_like(ranks[..., None]))

    def curve(self) -> Tensor:
        """Returns the mean normalised cumulative spectrum of every layer and head, (L, H, R)."""
        return self._cumulative / self.sentences

    def curve_quantile(self, share: float) -> Tensor:
        """Returns the quantile of the cumulative spectra of all maps at every rank, (R,), to a bin's precision."""
        below = self._histogram.cumsum(1).double() / self._histogram.sum(1, keepdim=True)
        return ((below >= share).int().argmax(1) + 1).double() / BINS

    def mean_rank(self) -> Tensor:
        """Returns the mean over sentences of the rank that holds the energy, (L, H)."""
        ranks = torch.arange(self._ranks.size(-1), dtype=torch.float64)
        return (self._ranks * ranks).sum(-1) / self.sentences

    def rank_counts(self) -> Tensor:
        """Returns how many sentences have each rank, (L, H, R + 1)."""
        return self._ranks


def rank_quantile(counts: Tensor, share: float) -> int:
    """Returns the smallest rank that is enough for a share of all maps, which have these counts, (..., R + 1)."""
    totals = counts.flatten(0, -2).sum(0)
    enough = totals.cumsum(0) >= share * totals.sum()
    return int(enough.int().argmax())
