"""Pieces of a report, whatever was measured."""

from collections.abc import Sequence

from tabulate import tabulate

from .run_options import RunOptions
from .timing import Spread

UNKNOWN = "–"


def heading(title: str, options: RunOptions) -> list[str]:
    """Returns the title, and what one has to know to measure again."""
    return [
        f"# {title}",
        f"{options.machine}. Measured on {options.device} in {options.dtype}; threads: {options.threads}.",
        f"    {options.command}",
        f"All times are medians, of {options.repeats} runs unless a section says otherwise, after {options.warm_up} "
        "that do not count; the contenders take turns run by run. The two numbers beside a median are its quartiles. A "
        "MB is 10^6 bytes.",
    ]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table of formatted numbers, the first column on the left and all others on the right."""
    align = ["left", *["right"] * (len(headers) - 1)]
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True, colalign=align if rows else None)


def milliseconds(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else f"{1000 * spread.median:,.1f}"


def quartiles(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else f"{1000 * spread.lower:,.1f} ... {1000 * spread.upper:,.1f}"


def megabytes(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / 1e6:,.2f}"


def ratio(one: float | None, other: float | None) -> str:
    return UNKNOWN if one is None or not other else f"{one / other:,.2f}"
