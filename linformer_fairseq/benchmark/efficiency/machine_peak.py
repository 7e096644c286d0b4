"""What the machine can do, and what of it our module takes."""

from functools import partial

import torch

from ..running import Running
from ..timing import interleaved
from .sizes import Sizes

SIDE = 4096


def matrix_product_peak(running: Running, side: int = SIDE) -> float:
    """Floating-point operations a second of the product of two square matrices, by the quickest quarter of the runs."""
    one, other = (torch.randn(side, side, device=running.torch_device, dtype=running.torch_dtype) for _ in range(2))
    call = partial(_product, one, other)
    time = interleaved({"product": call}, running.repeats, running.warm_up, running.torch_device).spreads["product"]
    return 2 * side**3 / time.lower


def _product(one: torch.Tensor, other: torch.Tensor, run: int) -> object:
    return one @ other


def linformer_operations(sizes: Sizes, sentences: int) -> int:
    """Floating-point operations of the matrix products in a forward pass for k <= n: two for each multiplication.

    E X and F X, the linear layers of keys and values, and between query and output whichever is less: their linear
    layers and the two products of attention, or the same with these layers folded into the slots.
    """
    n, k, width = sizes.length, sizes.k, sizes.dim
    slots = 2 * k * n * width + 2 * k * width**2
    apart = 2 * n * width**2 + 2 * n * k * width
    folded = 2 * k * width**2 + 2 * n * sizes.heads * k * width
    return 2 * sentences * (slots + min(apart, folded))
