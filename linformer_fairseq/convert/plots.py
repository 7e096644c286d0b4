"""The plot of a conversion's report."""

from pathlib import Path

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from linformer_fairseq.cli.figures import BASELINE_STYLE, save

from .compare import Comparison, OutputDrift
from .report import NAMES, span


def plot_comparison(comparison: Comparison, on_text: bool, projected_dim: str, path: Path) -> None:
    """Draws the perplexity of every model, or else the divergence from the trained one, by length and by position,
    whichever there is."""
    whose = "source" if comparison.positions[0] else "text"
    panels = [(f"tokens of the {whose}", comparison.sources), ("position", comparison.positions)]
    panels = [(title, drifts) for title, drifts in panels if drifts[0]]
    figure, all_axes = plt.subplots(
        1, len(panels), figsize=(6 * len(panels), 4.2), layout="constrained", sharey=True, squeeze=False
    )
    for axes, (title, drifts) in zip(all_axes[0], panels, strict=True):
        _draw(axes, drifts, on_text, projected_dim)
        axes.set_xlabel(title)
        axes.tick_params("x", rotation=30)
        axes.grid(alpha=0.3)
    all_axes[0, 0].set_ylabel("perplexity" if on_text else "divergence, nats")
    all_axes[0, 0].legend()
    save(figure, path)


def _draw(axes: Axes, drifts: list[list[OutputDrift]], on_text: bool, projected_dim: str) -> None:
    """Draws a line for every model over the ranges of lengths or positions."""
    ranges = [span(drift.bucket) for drift in drifts[0]]
    if on_text:
        axes.plot(ranges, [own.perplexities()[0] for own in drifts[0]], label="as trained", **BASELINE_STYLE)
    for name, of_model in zip(NAMES, drifts, strict=False):
        heights = [own.perplexities()[1] if on_text else own.divergence / own.tokens for own in of_model]
        axes.plot(ranges, heights, marker="o", label=f"{name}, k = {projected_dim}")
