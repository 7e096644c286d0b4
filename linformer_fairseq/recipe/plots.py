"""The report's pictures."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linformer_fairseq.benchmark.plots import BASELINE, Panel, draw, styles
from linformer_fairseq.cli.figures import BASELINE_STYLE, logarithmic, save

from .rows import Row
from .settings import Model


def perplexity(rows: list[Row], path: Path) -> None:
    """Draws validation perplexity against updates, all models in one picture."""
    figure, axes = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    for row in rows:
        _line(axes, row["validation_curve"], row.model.name)
    logarithmic(axes)
    axes.set(xlabel="updates", ylabel="validation perplexity (log scale)")
    axes.legend()
    save(figure, path)


def comparison(rows: list[Row], path: Path) -> None:
    """Draws quality and speed against k, a line for each kind of attention and the Transformer as a level."""
    panels: list[tuple[str, Callable[[Row], float | None]]] = [
        ("BLEU (test)", lambda row: row["bleu"]),
        ("perplexity (validation)", lambda row: row["perplexity"]),
        ("training, milliseconds per update", lambda row: _per_update(row, rows[0])),
        ("translation, sentences per second", lambda row: row["sentences_per_second"]),
    ]
    figure, grid = plt.subplots(2, 2, figsize=(9, 6.6), layout="constrained", sharex=True)
    for axes, (title, value) in zip(grid.flat, panels, strict=True):
        _panel(axes, rows, title, value)
    _legend_below(figure, grid.flat[0])
    save(figure, path)


def _per_update(row: Row, first: Row) -> float | None:
    """Returns milliseconds; None where machine, processes, precision or jobs differ from the first row's."""
    circumstances = ("training_machine", "processes", "training_precision", "jobs")
    seconds = row["training_seconds_per_update"]
    return 1000 * seconds if seconds and all(row[name] == first[name] for name in circumstances) else None


def lengths(rows: list[dict[str, Any]], path: Path) -> None:
    """Draws the time of every part that was timed against sentence length."""
    panels = []
    for part in dict.fromkeys(row["part"] for row in rows):
        points = [(row["model"], row["length"], row["seconds"]) for row in rows if row["part"] == part]
        panels.append(Panel(part, "tokens per sentence", "seconds per batch", points))
    line_styles = styles(dict.fromkeys(row["model"] for row in rows)) | {Model().name: BASELINE}
    draw(path, panels, line_styles, (5.25 * len(panels), 5.2), columns=4)


def _line(axes: Axes, points: Sequence[tuple[float, float]], name: str) -> None:
    style = BASELINE_STYLE if name == Model().name else {}
    xs, ys = [x for x, _ in points], [y for _, y in points]
    axes.plot(xs, ys, **{"label": name, "marker": "o", "markersize": 4, **style})


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(3, len(labels)))


def _panel(axes: Axes, rows: list[Row], title: str, value: Callable[[Row], float | None]) -> None:
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        level = value(row)
        if level is None:
            continue
        if row.model.k:
            lines.setdefault(row.model.what, []).append((row.model.k, level))
        else:
            axes.axhline(level, label=row.model.name, **BASELINE_STYLE)
    for name, points in lines.items():
        _line(axes, points, name)
    ks = sorted({row.model.k for row in rows if row.model.k})
    if ks:
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, labels=[str(k) for k in ks], minor=False)
        axes.set_xticks([], minor=True)
    axes.tick_params(labelbottom=True)
    axes.set_title(title, fontsize=11)
    axes.set_xlabel("k")
    axes.margins(x=0.08, y=0.15)
    axes.grid(alpha=0.3)
