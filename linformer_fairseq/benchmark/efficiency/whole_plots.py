"""Pictures of whole models: parameters against N, and inference time against sentence length."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import BASELINE_STYLE

from ..models import TRANSFORMER
from ..plots import dress, lines, save_with_legend
from .inference import InferenceRow
from .model_size import ModelSizeRow

SIZES_FILE = "sizes.png"
INFERENCE_FILE = "inference.png"


def sizes(rows: Sequence[ModelSizeRow], folder: Path) -> None:
    """Draws parameters against the longest sentence that a model is built for."""
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    styles = _styles([row.model for row in rows])
    lines(
        axes,
        rows,
        lambda row: row.model,
        lambda row: row.positions,
        lambda row: row.parameters and row.parameters / 1e6,
        styles,
    )
    ticks = [row.positions for row in rows]
    dress(axes, "model size", "N, longest sentence in tokens", "parameters, millions", ticks)
    save_with_legend(figure, axes, folder / SIZES_FILE, columns=2)


def inference(rows: Sequence[InferenceRow], folder: Path) -> None:
    """Draws the time of a batch of constant size against the length of its sentences, a panel for each part."""
    parts = list(dict.fromkeys(row.part for row in rows))
    figure, grid = plt.subplots(1, len(parts), figsize=(5.5 * len(parts), 5), layout="constrained", squeeze=False)
    styles = _styles([row.model for row in rows])
    ticks = [row.length for row in rows]
    for axes, part in zip(grid[0], parts, strict=True):
        own = [row for row in rows if row.part == part]
        lines(
            axes, own, lambda row: row.model, lambda row: row.length, lambda row: row.time and row.time.median, styles
        )
        dress(axes, part, "tokens of a sentence", "time of a batch, s", ticks)
    save_with_legend(figure, grid[0][-1], folder / INFERENCE_FILE, columns=2)


def _styles(models: Sequence[str]) -> dict[str, dict[str, str]]:
    """Returns the Transformer's style of all reports, and a colour and a marker for each of the others."""
    others = [model for model in dict.fromkeys(models) if model != TRANSFORMER]
    styles = {name: {"marker": "osDvPX*d"[i % 8], "color": f"C{i % 10}"} for i, name in enumerate(others)}
    return styles | {TRANSFORMER: {"marker": "^", **BASELINE_STYLE}}
