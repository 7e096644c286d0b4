"""A memo of what is computed from a tensor that many layers get, such as the padding mask of a batch."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

try:
    from torch.compiler import is_compiling
except ImportError:  # torch before 2.3
    from torch._utils import is_compiling

__all__ = ["is_compiling", "remembered"]

Result = TypeVar("Result")


def remembered(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates a function of a tensor that needs no gradient, so that its result is computed once for each tensor.

    A tensor is known by identity, as long as it is not changed in place; changes that torch does not count, through
    `.data` or NumPy, are not seen. Other arguments have to be equal. A result, which must not hold the tensor itself,
    is forgotten with it. All threads share the memo, each with tensors of its own.
    """
    memo = WeakIdKeyDictionary()  # the version of each tensor, and the results by the other arguments

    @wraps(function)
    def wrapper(tensor: Tensor, *others: Any) -> Result:
        if is_compiling() or tensor.is_inference():
            return function(tensor, *others)
        version, results = memo.get(tensor, (-1, {}))
        if version != tensor._version:
            results = {}
        if others in results:
            found: Result = results[others]
            return found
        result = function(tensor, *others)
        if not torch.is_inference_mode_enabled():  # whose tensors are of no use in training
            memo[tensor] = tensor._version, {**results, others: result}
        return result

    return wrapper
