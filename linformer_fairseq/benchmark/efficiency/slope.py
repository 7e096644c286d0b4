"""How fast time and memory grow with the length of a sentence."""

from collections.abc import Callable, Sequence
from operator import attrgetter

import numpy as np

from .module_grid import ModuleRow

Value = Callable[[ModuleRow], float | None]
"""Seconds or bytes of a batch."""
SECONDS: Value = attrgetter("seconds")
PEAK: Value = attrgetter("peak_bytes")


def slope(rows: Sequence[ModuleRow], value: Value) -> float | None:
    """Returns the exponent of a sentence's time, or memory, against its length, by least squares; None for one point.

    Args:
        rows: of one module.
    """
    points = {row.length: amount / row.sentences for row in rows if (amount := value(row))}
    if len(points) < 2:
        return None
    return float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0])
