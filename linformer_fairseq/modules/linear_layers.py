"""The linear layers around an attention, which need not be plain: they may be quantised, or have hooks."""

import torch.nn.functional as F
from torch import Tensor, nn


def is_plain(linear: nn.Module) -> bool:
    """Whether calling it is nothing but the product with its weight and the sum with its bias."""
    return (
        type(linear) is nn.Linear
        and not (linear._forward_pre_hooks or linear._forward_hooks)
        and not (linear._backward_pre_hooks or linear._backward_hooks)
    )


def without_bias(linear: nn.Linear, x: Tensor) -> Tensor:
    """What a layer makes of `x` (n, B, D) but for its bias. One that is not plain is called, and what it makes of zeros
    taken off."""
    return F.linear(x, linear.weight) if is_plain(linear) else linear(x) - _of_zeros(linear, x)


def with_and_without_bias(linear: nn.Linear, x: Tensor) -> tuple[Tensor, Tensor]:
    """What a layer makes of `x` (n, B, D), and the same but for its bias, in one product."""
    if is_plain(linear):
        out = F.linear(x, linear.weight)
        return out if linear.bias is None else out + linear.bias, out
    out = linear(x)
    return out, out - _of_zeros(linear, x)


def _of_zeros(linear: nn.Linear, x: Tensor) -> Tensor:
    return linear(x.new_zeros(1, 1, x.size(2)))
