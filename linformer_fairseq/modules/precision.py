"""What half precision is not enough for: sums over many tokens, and softmaxes."""

import torch
from torch import Tensor


def at_least_float32(dtype: torch.dtype) -> torch.dtype:
    """float32 for half precision, `dtype` for what is no less."""
    return torch.promote_types(dtype, torch.float32)


def softmax(scores: Tensor) -> Tensor:
    """Over the last dimension, in float32 or better, as fairseq's."""
    return torch.softmax(scores, -1, dtype=at_least_float32(scores.dtype))
