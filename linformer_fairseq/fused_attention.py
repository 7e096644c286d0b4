"""Which of its kernels torch uses for attention."""

import functools
import os
from collections.abc import Callable

import torch
from torch import Tensor

_VARIABLE = "TORCH_CUDNN_SDPA_DEPRIORITIZED"
_WHOLE = "highest"
"""What torch calls the precision of float32 products whose factors are not rounded."""
LONG = 448
"""Queries, and keys, from which on torch's fused attention on a CPU is faster with rounded factors, although it rounds
every block of keys anew for each block of queries; measured with the bfloat16 units of an AMD EPYC."""


def prefer_flash_attention() -> None:
    """Has torch choose its flash attention before that of cuDNN, unless the environment variable
    TORCH_CUDNN_SDPA_DEPRIORITIZED is set; torch reads it when it first computes attention on a GPU.

    Where its cuDNN is newer than 9.15, as that of torch 2.11 is, torch prefers cuDNN's on Hopper and Blackwell, which
    builds a plan for every new shape of a batch. In machine translation hardly two batches have the same one.
    """
    os.environ.setdefault(_VARIABLE, "1")


def rounding_where_long(attention: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns `torch.nn.functional.scaled_dot_product_attention` for a process that rounds the factors of its float32
    products: attention rounds them where both sides have `LONG` tokens or more, and is as fused as ever elsewhere. With
    dropout, which torch's fused attention on a CPU has not, it is made of products like any others."""

    @functools.wraps(attention)
    def choosing(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        *args: object,
        **keywords: object,
    ) -> Tensor:
        attend = functools.partial(attention, query, key, value, attn_mask, dropout_p, *args, **keywords)
        rounding = torch.get_float32_matmul_precision()
        if rounding == _WHOLE or dropout_p > 0 or min(query.size(-2), key.size(-2)) >= LONG:
            return attend()
        torch.set_float32_matmul_precision(_WHOLE)
        try:
            out = attend()
        finally:
            torch.set_float32_matmul_precision(rounding)
        if out.grad_fn is not None:  # the backward pass likewise
            out.grad_fn.register_prehook(lambda _: torch.set_float32_matmul_precision(_WHOLE))
            out.grad_fn.register_hook(lambda *_: torch.set_float32_matmul_precision(rounding))
        return out

    return choosing
