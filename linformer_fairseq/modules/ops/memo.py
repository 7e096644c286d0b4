"""A small memo of what is computed from a tensor that many layers get, such as the padding mask of a batch."""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, TypeVar
from weakref import ref

import torch
from torch import Tensor

try:
    from torch.compiler import is_compiling
except ImportError:  # torch before 2.3
    from torch._utils import is_compiling

__all__ = ["is_compiling", "remembered"]

Result = TypeVar("Result")

_KEPT = 16
"""Results that a function remembers, at most."""


class _Entry(NamedTuple):
    tensor: "ref[Tensor]"
    version: int
    others: tuple[Any, ...]
    result: Any


def remembered(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorates a function of a tensor that needs no gradient, so that its result is computed once for each tensor.

    A tensor is known by identity, as long as it is not changed in place; changes that torch does not count, through
    `.data` or NumPy, are not seen. Other arguments have to be equal. A result is forgotten with its tensor. All threads
    share the memo, each with tensors of its own.
    """
    entries: tuple[_Entry, ...] = ()

    def forget(tensor: "ref[Tensor]") -> None:
        nonlocal entries
        entries = tuple(entry for entry in entries if entry.tensor is not tensor)

    @wraps(function)
    def wrapper(tensor: Tensor, *others: Any) -> Result:
        nonlocal entries
        if is_compiling() or tensor.is_inference():
            return function(tensor, *others)
        for entry in entries:
            if entry.tensor() is tensor and entry.version == tensor._version and entry.others == others:
                found: Result = entry.result
                return found
        result = function(tensor, *others)
        if not torch.is_inference_mode_enabled():  # whose tensors are of no use in training
            entries = (_Entry(ref(tensor, forget), tensor._version, others, result), *entries[: _KEPT - 1])
        return result

    return wrapper
