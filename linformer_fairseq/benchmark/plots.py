"""Pictures with logarithmic axes, a line a contender."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from linformer_fairseq.cli.figures import BASELINE_STYLE, save

from .causal_product import OURS, TrainingRow
from .decoding import DecodingRow
from .models import LINFORMERS, TRANSFORMER

Row = TypeVar("Row", DecodingRow, TrainingRow)
STYLES = {
    name: {"marker": marker, "linestyle": line, "color": f"C{index}"}
    for index, (name, marker, line) in enumerate(
        zip([*LINFORMERS, *OURS], "osovPs^D", ["-", "-.", "-", "--", ":", "-", "--", ":"], strict=True)
    )
} | {TRANSFORMER: {"marker": "^", **BASELINE_STYLE}}


def decoding(rows: list[DecodingRow], path: Path) -> None:
    """Time of a step against target position for every beam, and the state's size for the widest."""
    beams = sorted({row.beam for row in rows})
    figure, grid = plt.subplots(
        1, len(beams) + 1, figsize=(4.6 * (len(beams) + 1), 4.8), layout="constrained", squeeze=False
    )
    *time_axes, state_axes = grid[0]
    for axes, beam in zip(time_axes, beams, strict=True):
        own = [row for row in rows if row.beam == beam]
        _lines(axes, own, _model, lambda row: row.position, lambda row: row.step and 1000 * row.step.median)
        _dress(axes, f"beam {beam}", "target position, tokens", "time of a step, ms", [row.position for row in rows])
    widest = [row for row in rows if row.beam == beams[-1]]
    _lines(state_axes, widest, _model, lambda row: row.position, lambda row: row.state_bytes and row.state_bytes / 1e6)
    title = f"incremental state, beam {beams[-1]}"
    _dress(state_axes, title, "target position, tokens", "size of the state, MB", [row.position for row in rows])
    _save(figure, time_axes[0], path, columns=3)


def training(rows: list[TrainingRow], path: Path) -> None:
    """Time and peak memory of forward and backward against length."""
    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(10.5, 5.2), layout="constrained")
    lengths = [row.length for row in rows]
    _lines(time_axes, rows, _contender, lambda row: row.length, lambda row: row.time and 1000 * row.time.median)
    _dress(time_axes, "time of forward and backward", "T, tokens", "time, ms", lengths)
    _lines(memory_axes, rows, _contender, lambda row: row.length, lambda row: row.peak_bytes and row.peak_bytes / 1e6)
    _dress(memory_axes, "peak memory of forward and backward", "T, tokens", "peak memory, MB", lengths)
    _save(figure, time_axes, path, columns=2)


def _model(row: DecodingRow) -> str:
    return row.model


def _contender(row: TrainingRow) -> str:
    return row.contender


def _lines(
    axes: Axes,
    rows: Sequence[Row],
    name: Callable[[Row], str],
    x: Callable[[Row], int],
    y: Callable[[Row], float | None],
) -> None:
    """A line for each name, through the rows that have a value."""
    for line in dict.fromkeys(map(name, rows)):
        points = [(x(row), y(row)) for row in rows if name(row) == line and y(row)]
        axes.plot(
            [p for p, _ in points], [q for _, q in points], label=line, linewidth=1.5, markersize=5, **STYLES[line]
        )


def _dress(axes: Axes, title: str, x_label: str, y_label: str, ticks: Sequence[int]) -> None:
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


def _save(figure: Figure, axes: Axes, path: Path, columns: int) -> None:
    """Below all panels the legend of one of them."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns)
    save(figure, path)
