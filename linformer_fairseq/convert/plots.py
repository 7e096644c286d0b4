"""The plot of a conversion's report."""

from pathlib import Path

from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import BASELINE_STYLE, save

from .compare import OutputDrift
from .report import NAMES


def plot_perplexities(drifts: list[list[OutputDrift]], projected_dim: str, path: Path) -> None:
    """Draws the perplexity of every model by the length of the source."""
    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    buckets = [str(own.bucket) for own in drifts[0]]
    axes.plot(buckets, [own.perplexities()[0] for own in drifts[0]], label="as trained", **BASELINE_STYLE)
    for name, of_model in zip(NAMES, drifts, strict=False):
        label = f"{name}, k = {projected_dim}"
        axes.plot(buckets, [own.perplexities()[1] for own in of_model], marker="o", label=label)
    axes.set(xlabel="length of the source", ylabel="perplexity")
    axes.grid(alpha=0.3)
    axes.legend()
    save(figure, path)
