"""Pictures of whole models: parameters against N, and inference time against sentence length."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import BASELINE_STYLE

from .. import plots
from ..models import TRANSFORMER
from ..plots import Style, panel, save_with_legend, scaled
from .inference import InferenceRow
from .model_size import ModelSizeRow

SIZES_FILE = "sizes.png"
INFERENCE_FILE = "inference.png"


def sizes(rows: Sequence[ModelSizeRow], folder: Path) -> None:
    """Draws parameters against the longest sentence that a model is built for."""
    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    points = [(row.model, row.positions, scaled(1e-6, row.parameters)) for row in rows]
    panel(axes, points, _styles(rows), "model size", "N, longest sentence in tokens", "parameters, millions")
    save_with_legend(figure, axes, folder / SIZES_FILE, columns=2)


def inference(rows: Sequence[InferenceRow], folder: Path) -> None:
    """Draws the time of a batch of constant size against the length of its sentences, a panel for each part."""
    parts = list(dict.fromkeys(row.part for row in rows))
    figure, grid = plt.subplots(1, len(parts), figsize=(5.5 * len(parts), 5), layout="constrained", squeeze=False)
    for axes, part in zip(grid[0], parts, strict=True):
        points = [(row.model, row.length, row.time and row.time.median) for row in rows if row.part == part]
        panel(axes, points, _styles(rows), part, "tokens of a sentence", "time of a batch, s")
    save_with_legend(figure, grid[0][-1], folder / INFERENCE_FILE, columns=2)


def _styles(rows: Sequence[ModelSizeRow | InferenceRow]) -> dict[str, Style]:
    """Returns the Transformer's style of all reports, and another one for each of the other models."""
    return plots.styles(dict.fromkeys(row.model for row in rows)) | {TRANSFORMER: {"marker": "^", **BASELINE_STYLE}}
