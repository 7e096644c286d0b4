"""Which of its kernels torch uses for attention."""

import functools
import os
from collections.abc import Callable

import torch
from torch import Tensor

_VARIABLE = "TORCH_CUDNN_SDPA_DEPRIORITIZED"
LONG = 448
"""Queries, and keys, from which on torch's fused attention on a CPU is faster than its unfused one although it rounds
every block of keys anew; measured with bfloat16 units of an AMD EPYC."""


def prefer_flash_attention() -> None:
    """Has torch choose its flash attention before that of cuDNN, unless the environment variable
    TORCH_CUDNN_SDPA_DEPRIORITIZED is set; torch reads it when it first computes attention on a GPU.

    Where its cuDNN is newer than 9.15, as that of torch 2.11 is, torch prefers cuDNN's on Hopper and Blackwell, which
    builds a plan for every new shape of a batch. In machine translation hardly two batches have the same one.
    """
    os.environ.setdefault(_VARIABLE, "1")


def fused_where_long(attention: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Returns `torch.nn.functional.scaled_dot_product_attention` for a CPU that rounds the factors of its products:
    fused where both sides have `LONG` tokens or more."""

    @functools.wraps(attention)
    def choosing(query: Tensor, key: Tensor, *args: object, **keywords: object) -> Tensor:
        torch.backends.cuda.enable_flash_sdp(min(query.size(-2), key.size(-2)) >= LONG)  # that of the CPU, too
        return attention(query, key, *args, **keywords)

    return choosing
