"""What several layers compute alike from one tensor, computed once."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import Tensor

Result = TypeVar("Result")


class Once:
    """While it is open, a second call for the same tensor gives the first one's result; closed it computes every time.

    All layers of a decoder meet the same encoder output: its padding is cleared once for all of them, and where they
    share a projection, it is projected once. A layer that activation checkpointing computes again finds it closed, and
    what it needs is computed again as well.
    """

    def __init__(self) -> None:
        self._results: dict[str, tuple[Tensor, object]] | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """For one pass over the layers; what was computed is let go at its end."""
        self._results = {}
        try:
            yield
        finally:
            self._results = None

    def __call__(self, what: str, x: Tensor, compute: Callable[[Tensor], Result]) -> Result:
        """`compute(x)`, or what it gave when it was last asked for `what` of this very tensor."""
        results = self._results
        if results is None:
            return compute(x)
        known = results.get(what)
        if known is None or known[0] is not x:
            known = results[what] = (x, compute(x))
        return known[1]
