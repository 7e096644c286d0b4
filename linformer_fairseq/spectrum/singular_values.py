"""What the singular values σ₁ ≥ σ₂ ≥ ... of a matrix say about its rank.

cumulative     (σ₁ + ... + σ_r) / (σ₁ + σ₂ + ...)        what the paper's Figure 1 shows
energy         (σ₁² + ... + σ_r²) / (σ₁² + σ₂² + ...)    1 minus the squared relative error of the best matrix of
                                                         rank r (Eckart and Young, 1936)
"""

import torch
from torch import Tensor


def singular_values(maps: Tensor) -> Tensor:
    """Returns the singular values of matrices (..., T, n) in descending order, (..., min(T, n)), in float64."""
    return torch.linalg.svdvals(maps.double())


def cumulative(values: Tensor) -> Tensor:
    """Returns the normalised cumulative spectrum, (..., r), of singular values (..., r)."""
    sums = values.cumsum(-1)
    return sums / sums[..., -1:]


def rank_holding(values: Tensor, energy: float) -> Tensor:
    """Returns the smallest rank that holds a share `energy` of all energy, (...), for singular values (..., r)."""
    held = cumulative(values.square())
    enough = held >= energy - 1e-9  # a map whose values end there exactly needs no more
    return enough.int().argmax(-1) + 1
