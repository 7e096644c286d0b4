"""Pictures of decoding and of training."""

from pathlib import Path

from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import BASELINE_STYLE

from ..plots import panel, save_with_legend, scaled, styles
from .decoding import DecodingRow
from .models import LINFORMERS, TRANSFORMER
from .product import OURS, TrainingRow

STYLES = styles([*LINFORMERS, *OURS]) | {TRANSFORMER: {"marker": "^", **BASELINE_STYLE}}


def decoding(rows: list[DecodingRow], path: Path) -> None:
    """Draws the time of a step against target position for every beam, and the state's size for the widest."""
    beams = sorted({row.beam for row in rows})
    figure, grid = plt.subplots(
        1, len(beams) + 1, figsize=(4.6 * (len(beams) + 1), 4.8), layout="constrained", squeeze=False
    )
    *time_axes, state_axes = grid[0]
    x_label = "target position, tokens"
    for axes, beam in zip(time_axes, beams, strict=True):
        own = [row for row in rows if row.beam == beam]
        times = [(row.model, row.position, row.step and 1e3 * row.step.median) for row in own]
        panel(axes, times, STYLES, f"beam {beam}", x_label, "time of a step, ms")
    sizes = [(row.model, row.position, scaled(1e-6, row.state_bytes)) for row in rows if row.beam == beams[-1]]
    panel(state_axes, sizes, STYLES, f"incremental state, beam {beams[-1]}", x_label, "size of the state, MB")
    save_with_legend(figure, time_axes[0], path, columns=3)


def training(rows: list[TrainingRow], path: Path) -> None:
    """Draws time and peak memory of forward and backward against length."""
    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(10.5, 5.2), layout="constrained")
    times = [(row.contender, row.length, row.time and 1e3 * row.time.median) for row in rows]
    panel(time_axes, times, STYLES, "time of forward and backward", "T, tokens", "time, ms")
    peaks = [(row.contender, row.length, scaled(1e-6, row.peak_bytes)) for row in rows]
    panel(memory_axes, peaks, STYLES, "peak memory of forward and backward", "T, tokens", "peak memory, MB")
    save_with_legend(figure, time_axes, path, columns=2)
