"""How much the machine can compute, and how much of it Linformer attention uses."""

import torch
from torch import Tensor

from ..run_options import RunOptions
from .peers import Sizes

SIDES = {"cpu": 2048, "cuda": 8192}
"""Rows of the matrices: on a GPU the product has to take far longer than its launch."""


class SquareProduct:
    """The product of two square matrices, to be called as a contender is."""

    def __init__(self, options: RunOptions) -> None:
        side = SIDES[options.device]
        self._one, self._other = torch.randn(2, side, side, **options.tensor_options)
        self.operations = 2 * side**3
        """Floating-point operations of a call."""

    def __call__(self, run: int) -> Tensor:
        return self._one @ self._other


def linformer_operations(sizes: Sizes, sentences: int) -> int:
    """Returns the floating-point operations of a forward pass's matrix products, for k <= n: two per multiplication.

    They are E X and F X, the linear layers of keys and values, and, between query and output, whichever is less: their
    linear layers and the two products of attention, or the same with these layers folded into the slots.
    """
    n, k, width = sizes.length, sizes.k, sizes.dim
    slots = 2 * k * n * width + 2 * k * width**2
    separate = 2 * n * width**2 + 2 * n * k * width
    folded = 2 * k * width**2 + 2 * n * sizes.heads * k * width
    return 2 * sentences * (slots + min(separate, folded))
