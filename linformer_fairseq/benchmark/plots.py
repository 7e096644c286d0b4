"""Pictures with logarithmic axes and a line for each contender."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from linformer_fairseq.cli.figures import save

Point = tuple[str, int, float | None]
"""The name of a line, x, and y where there is one."""
Style = dict[str, Any]
MARKERS = "ovsDPX*d<>pH^h"
RED = "C3"
"""For the contender that a picture is about."""
COLOURS = [colour for colour in colormaps["tab20"].colors if colour != to_rgb(RED)]


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Returns a style for each line, another one for each as far as markers and colours go."""
    return {
        name: {"marker": marker, "color": colour}
        for name, marker, colour in zip(names, cycle(MARKERS), cycle(COLOURS), strict=False)
    }


def panel(
    axes: Axes, points: Sequence[Point], line_styles: Mapping[str, Style], title: str, x_label: str, y_label: str
) -> None:
    """Draws a line through the points of each name, in its style."""
    for name in dict.fromkeys(name for name, _, _ in points):
        own = [(x, y) for line, x, y in points if line == name and y]
        style = {"linewidth": 1.5, "markersize": 5, **line_styles[name]}
        axes.plot([x for x, _ in own], [y for _, y in own], label=name, **style)
    ticks = sorted({x for _, x, _ in points})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
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


def scaled(factor: float, value: float | None) -> float | None:
    """Returns a number in another unit, or None where there is none."""
    return None if value is None else factor * value
