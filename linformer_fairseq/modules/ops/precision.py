"""Sums over many tokens and softmaxes in at least float32: half precision is not enough for them."""

import torch
from torch import Tensor


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, otherwise `dtype` itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def softmax(scores: Tensor) -> Tensor:
    """The softmax over the last dimension, computed and returned in at least float32, as fairseq's is."""
    return torch.softmax(scores, -1, dtype=at_least_float32(scores.dtype))
