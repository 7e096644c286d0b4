"""Pictures of the study, from what results.json holds."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path

from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from linformer_fairseq.benchmark.plots import MARKERS, Panel, Style, draw
from linformer_fairseq.cli.figures import BASELINE_STYLE, logarithmic, save
from linformer_fairseq.recipe.merging import Found

from .arms import BASELINE
from .figure import Panel as Curves
from .figure import curves

CURVES, COSTS = "curves.png", "costs.png"
_COLOURS = colormaps["tab10"].colors
_SKIPPED = 0.02
"""The share of a training's first updates that is left out of the picture: perplexity falls steeply there."""


def write_plots(found: Found, out: Path) -> dict[str, str]:
    """Draws what there is to draw, and returns the files by what they show."""
    pictures = {}
    panels = curves(found)
    if panels:
        _draw_curves(panels, out / CURVES)
        pictures["Perplexity on the validation text against updates"] = CURVES
    if found["costs"]:
        _costs(found, out / COSTS)
        pictures["Speed and memory of training against length"] = COSTS
    return pictures


def _draw_curves(panels: Mapping[str, Curves], path: Path) -> None:
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure, grid = plt.subplots(rows, columns, figsize=(6.4 * columns, 4.4 * rows), layout="constrained", squeeze=False)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, title, lines)
    save(figure, path)


def _panel(axes: Axes, title: str, lines: Curves) -> None:
    colours = cycle(_COLOURS)
    for name, (is_baseline, curve) in lines.items():
        style = BASELINE_STYLE if is_baseline else {"color": next(colours)}
        last = max((update for update, _ in curve), default=0)
        points = [(update, level) for update, level in curve if update >= _SKIPPED * last]
        axes.plot([update for update, _ in points], [level for _, level in points], label=name, **style)
    logarithmic(axes)
    axes.set(xlabel="updates", ylabel="perplexity (validation)")
    axes.set_title(title, fontsize="medium")
    axes.legend(fontsize="small")


def _costs(found: Found, path: Path) -> None:
    rows = found["costs"]["rows"]
    labels = {name: arm["label"] for name, arm in found["arms"].items()}
    panels = [
        Panel(title, "tokens of a block", unit, [(labels[row["arm"]], row["length"], row[name]) for row in rows], scale)
        for title, name, unit, scale in (
            ("speed of training", "tokens_per_second", "tokens per second", 1.0),
            ("peak memory of a training step", "peak_bytes", "MB", 1e-6),
        )
    ]
    others = [label for name, label in labels.items() if name != BASELINE]
    styles: dict[str, Style] = {
        name: {"marker": marker, "color": colour}
        for name, marker, colour in zip(others, cycle(MARKERS), cycle(_COLOURS), strict=False)
    }
    if BASELINE in labels:
        styles = {labels[BASELINE]: {"marker": "^", **BASELINE_STYLE}, **styles}
    draw(path, panels, styles, (11, 5.4), columns=4)
