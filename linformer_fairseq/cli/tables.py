"""Tables that are printed."""

from collections.abc import Sequence

from tabulate import tabulate


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table of formatted numbers, the first column on the left and all others on the right."""
    align = ["left", *["right"] * (len(headers) - 1)]
    return tabulate(rows, headers, tablefmt="pipe", disable_numparse=True, colalign=align if rows else None)
