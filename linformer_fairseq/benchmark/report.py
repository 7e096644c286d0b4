"""Pieces of a report, whatever was measured."""

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from linformer_fairseq.cli.tables import UNKNOWN, table

from .run_options import RunOptions
from .timing import Spread

RowT = TypeVar("RowT")
LineT = TypeVar("LineT")
ColumnT = TypeVar("ColumnT")


def heading(title: str, options: RunOptions) -> list[str]:
    """Returns the title, and what one has to know to measure again."""
    return [
        f"# {title}",
        f"{options.machine}. Measured on {options.device} in {options.dtype}; threads: {options.threads}.",
        f"    {options.command}",
        f"All times are medians of {_counted(options.repeats, 'run')}, unless a section says otherwise, after "
        f"{_counted(options.warm_up, 'warm-up run')}; the contenders take turns run by run. The two numbers beside a "
        "median are its quartiles. 1 MB is 10^6 bytes.",
    ]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def listing(rows: Iterable[RowT], columns: Mapping[str, Callable[[RowT], str]]) -> str:
    """Returns a table with a line for each row; a column is its heading, and what it shows of a row."""
    return table(list(columns), [[show(row) for show in columns.values()] for row in rows])


def crossing(
    corner: str, lines: Mapping[str, LineT], columns: Mapping[str, ColumnT], cell: Callable[[LineT, ColumnT], str]
) -> str:
    """Returns a table of a cell for each line and column, both given under their headings."""
    cells = [[name, *(cell(line, column) for column in columns.values())] for name, line in lines.items()]
    return table([corner, *columns], cells)


def milliseconds(spread: Spread | None) -> str:
    return UNKNOWN if spread is None else f"{1000 * spread.median:,.1f}"


def quartiles(spread: Spread | None, scale: float = 1000, digits: int = 1) -> str:
    """Returns both quartiles as `scale` times what they are, in milliseconds for seconds."""
    if spread is None:
        return UNKNOWN
    return f"{scale * spread.lower:,.{digits}f} ... {scale * spread.upper:,.{digits}f}"


def megabytes(size: int | None) -> str:
    return UNKNOWN if size is None else f"{size / 1e6:,.2f}"


def ratio(one: float | None, other: float | None) -> str:
    return UNKNOWN if one is None or not other else f"{one / other:,.2f}"
