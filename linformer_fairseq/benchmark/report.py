"""Pieces of a report, whatever was measured."""

from collections.abc import Sequence

from tabulate import tabulate

from linformer_fairseq.cli.machine import describe_machine

from .running import Running
from .timing import Spread

UNKNOWN = "–"


def heading(title: str, running: Running) -> list[str]:
    """The title, and what has to be known to measure again."""
    return [
        f"# {title}",
        f"{describe_machine()}. Measured on {running.device} in {running.dtype}; threads: {running.threads}.",
        f"    {running.command}",
        f"All times are medians, of {running.repeats} runs where nothing else is said (and {running.warm_up} before "
        "them that do not count), the contenders taking turns run by run; the two numbers beside a median are its "
        "quartiles. A MB is 10^6 bytes.",
    ]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Numbers are to be formatted already."""
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
