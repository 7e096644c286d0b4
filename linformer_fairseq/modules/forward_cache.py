"""A cache of what several layers compute from the same tensor in one forward pass."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

X = TypeVar("X")
Result = TypeVar("Result")


class ForwardCache:
    """Remembers results while it is open; closed it computes every time.

    All layers of a decoder attend to the same encoder output: its padding is cleared once for all of them, and where
    they share a projection, it is projected once. All layers of one kind have sentences of the same lengths: these are
    counted once, and so are windows of tokens. A layer that activation checkpointing computes again finds the cache
    closed, so that what it needs is computed again as well.
    """

    def __init__(self) -> None:
        self._results: dict[str, tuple[object, object]] | None = None

    @contextmanager
    def open(self) -> Iterator[None]:
        """Opens the cache for one pass over the layers, and empties it at the end."""
        self._results = {}
        try:
            yield
        finally:
            self._results = None

    def get(self, name: str, x: X, compute: Callable[[X], Result]) -> Result:
        """Returns `compute(x)`, or its remembered result if the last call with this name had the very same object.

        Args:
            name: of the computation, with all that it depends on beside `x`.
        """
        if self._results is None:
            return compute(x)
        known = self._results.get(name)
        if known is None or known[0] is not x:
            known = self._results[name] = (x, compute(x))
        return known[1]  # type: ignore[return-value]  # a name always stands for the same computation
