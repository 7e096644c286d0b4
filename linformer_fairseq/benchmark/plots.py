"""Pictures with logarithmic axes and a line for each contender."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb

from linformer_fairseq.cli.figures import BASELINE_STYLE, logarithmic, save

Point = tuple[str, int, float | None]
"""The name of a line, x, and y where there is one."""
Style = dict[str, Any]
MARKERS = "ovsDPX*d<>pH^h"
RED = "C3"
"""For the contenders that a picture is about."""
THICK = 3.0
"""The width of their lines."""
COLOURS = [colour for colour in colormaps["tab20"].colors if colour != to_rgb(RED)]
BASELINE: Style = {"marker": "^", **BASELINE_STYLE}


class Panel(NamedTuple):
    """One of a picture's panels."""

    title: str
    x_label: str
    y_label: str
    points: Sequence[Point]
    scale: float = 1.0
    """What y is multiplied by, to be in the label's unit."""


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Returns a style for each line, another one for each as far as markers and colours go."""
    return {
        name: {"marker": marker, "color": colour}
        for name, marker, colour in zip(names, cycle(MARKERS), cycle(COLOURS), strict=False)
    }


def draw(
    path: Path,
    panels: Sequence[Panel],
    line_styles: Mapping[str, Style],
    size: tuple[float, float],
    columns: int,
    title: str | None = None,
) -> None:
    """Draws panels beside each other, with one legend below them all.

    Args:
        size: width and height of the picture, in inches.
        columns: of the legend, and `title` is its title.
    """
    figure, grid = plt.subplots(1, len(panels), figsize=size, layout="constrained", squeeze=False)
    lines: dict[str, Any] = {}
    for axes, panel in zip(grid[0], panels, strict=True):
        _draw_panel(axes, panel, line_styles)
        handles, names = axes.get_legend_handles_labels()
        lines |= dict(zip(names, handles, strict=True))
    figure.legend(lines.values(), lines, loc="outside lower center", ncols=columns, title=title, fontsize="small")
    save(figure, path)


def _draw_panel(axes: Axes, panel: Panel, line_styles: Mapping[str, Style]) -> None:
    for name in dict.fromkeys(name for name, _, _ in panel.points):
        own = [(x, panel.scale * y) for line, x, y in panel.points if line == name and y]
        style = {"linewidth": 1.5, "markersize": 5, **line_styles[name]}
        axes.plot([x for x, _ in own], [y for _, y in own], label=name, **style)
    ticks = sorted({x for _, x, _ in panel.points})
    axes.set_xscale("log", base=2)
    axes.set_xticks(ticks, labels=[f"{tick:,}" for tick in ticks])
    axes.set_xticks([], minor=True)
    axes.set_title(panel.title, fontsize=11)
    axes.set(xlabel=panel.x_label, ylabel=panel.y_label)
    logarithmic(axes)
