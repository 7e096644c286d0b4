"""Pictures with logarithmic axes and a line for each contender."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from linformer_fairseq.cli.figures import save

Row = TypeVar("Row")


def lines(
    axes: Axes,
    rows: Sequence[Row],
    name: Callable[[Row], str],
    x: Callable[[Row], int],
    y: Callable[[Row], float | None],
    styles: Mapping[str, Mapping[str, Any]],
) -> None:
    """Draws a line for each name, in its style, through the rows that have a value."""
    for line in dict.fromkeys(map(name, rows)):
        points = [(x(row), y(row)) for row in rows if name(row) == line and y(row)]
        style = {"linewidth": 1.5, "markersize": 5, **styles[line]}
        axes.plot([p for p, _ in points], [q for _, q in points], label=line, **style)


def dress(axes: Axes, title: str, x_label: str, y_label: str, ticks: Sequence[int]) -> None:
    """Makes both axes logarithmic, with their labels."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sorted(set(ticks)), labels=[f"{tick:,}" for tick in sorted(set(ticks))])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    axes.grid(alpha=0.3)


def save_with_legend(figure: Figure, axes: Axes, path: Path, columns: int, title: str | None = None) -> None:
    """Saves a figure with the legend of one of its panels below them all."""
    legend = axes.get_legend_handles_labels()
    figure.legend(*legend, loc="outside lower center", ncols=columns, title=title, fontsize="small")
    save(figure, path)
