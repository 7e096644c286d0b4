"""Tables of the reports."""

import statistics
from collections.abc import Sequence

from tabulate import tabulate

UNKNOWN = "–"
"""Stands in a cell for a value that is not there."""


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table of formatted numbers, the first column on the left and all others on the right."""
    align = ["left", *["right"] * (len(headers) - 1)]
    return tabulate(rows, headers, tablefmt="pipe", disable_numparse=True, colalign=align if rows else None)


def with_deviation(values: Sequence[float], form: str = ",.2f") -> str:
    """Returns the mean of values and, of several, their standard deviation; `UNKNOWN` of none.

    Args:
        form: how numbers are written, as in a format string.
    """
    if not values:
        return UNKNOWN
    deviation = f" ± {statistics.stdev(values):{form.lstrip('+')}}" if len(values) > 1 else ""
    return f"{statistics.mean(values):{form}}{deviation}"


def with_interval(mean: float, low: float, high: float, digits: int = 2) -> str:
    """Returns a difference with its sign and, in brackets, the interval that it lies in."""
    return f"{mean:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]"
