"""Counts what a computation dispatches."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

VIEWS = {torch.ops.aten._unsafe_view.default}
"""Operations whose result is a view that does not say so."""


class _Counted(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        made = [one for one in func._schema.returns if isinstance(one.type, torch.TensorType)]
        if func not in VIEWS and any(one.alias_info is None or one.alias_info.is_write for one in made):
            self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def computing_operations(run: Callable[[], object]) -> list[str]:
    """Returns the names of all operations that write to memory; views are not counted."""
    with _Counted() as counted:
        run()
    return counted.names
