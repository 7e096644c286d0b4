"""Pictures of decoding and of training."""

from pathlib import Path

from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import BASELINE_STYLE

from ..plots import dress, lines, save_with_legend
from .decoding import DecodingRow
from .models import LINFORMERS, TRANSFORMER
from .product import OURS, TrainingRow

STYLES = {
    name: {"marker": marker, "linestyle": line, "color": f"C{index}"}
    for index, (name, marker, line) in enumerate(
        zip([*LINFORMERS, *OURS], "osovPs^D", ["-", "-.", "-", "--", ":", "-", "--", ":"], strict=True)
    )
} | {TRANSFORMER: {"marker": "^", **BASELINE_STYLE}}


def decoding(rows: list[DecodingRow], path: Path) -> None:
    """Draws the time of a step against target position for every beam, and the state's size for the widest."""
    beams = sorted({row.beam for row in rows})
    figure, grid = plt.subplots(
        1, len(beams) + 1, figsize=(4.6 * (len(beams) + 1), 4.8), layout="constrained", squeeze=False
    )
    *time_axes, state_axes = grid[0]
    for axes, beam in zip(time_axes, beams, strict=True):
        own = [row for row in rows if row.beam == beam]
        lines(axes, own, _model, lambda row: row.position, lambda row: row.step and 1000 * row.step.median, STYLES)
        dress(axes, f"beam {beam}", "target position, tokens", "time of a step, ms", [row.position for row in rows])
    widest = [row for row in rows if row.beam == beams[-1]]
    lines(
        state_axes,
        widest,
        _model,
        lambda row: row.position,
        lambda row: row.state_bytes and row.state_bytes / 1e6,
        STYLES,
    )
    title = f"incremental state, beam {beams[-1]}"
    dress(state_axes, title, "target position, tokens", "size of the state, MB", [row.position for row in rows])
    save_with_legend(figure, time_axes[0], path, columns=3)


def training(rows: list[TrainingRow], path: Path) -> None:
    """Draws time and peak memory of forward and backward against length."""
    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(10.5, 5.2), layout="constrained")
    lengths = [row.length for row in rows]
    lines(time_axes, rows, _contender, lambda row: row.length, lambda row: row.time and 1000 * row.time.median, STYLES)
    dress(time_axes, "time of forward and backward", "T, tokens", "time, ms", lengths)
    lines(
        memory_axes,
        rows,
        _contender,
        lambda row: row.length,
        lambda row: row.peak_bytes and row.peak_bytes / 1e6,
        STYLES,
    )
    dress(memory_axes, "peak memory of forward and backward", "T, tokens", "peak memory, MB", lengths)
    save_with_legend(figure, time_axes, path, columns=2)


def _model(row: DecodingRow) -> str:
    return row.model


def _contender(row: TrainingRow) -> str:
    return row.contender
