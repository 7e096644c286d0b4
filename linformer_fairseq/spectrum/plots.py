"""Plots the spectra."""

from pathlib import Path

import numpy
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from linformer_fairseq.cli.figures import save
from linformer_fairseq.length_buckets import Bucket

from .measure import Spectra
from .statistics import Statistics

TITLES = {
    "encoder": "encoder self-attention",
    "cross": "cross-attention",
    "decoder": "decoder self-attention",
}
SPREAD = (0.1, 0.9)
"""Quantiles of the maps between which the band lies."""


def spectra(places: Spectra, rank: int, path: Path) -> None:
    """Draws a row for each place: cumulative spectra by length with their spread, and a heat map of the longest.

    Args:
        places: the spectra of every place, from the shortest sentences to the longest.
        rank: whose share of the singular values the heat maps show.
    """
    figure, grid = plt.subplots(
        len(places), 2, figsize=(11, 3.7 * len(places)), layout="constrained", squeeze=False, width_ratios=(3, 2)
    )
    for (curve_axes, heat_axes), (place, found) in zip(grid, places.items(), strict=True):
        _curves(curve_axes, found)
        curve_axes.set_title(TITLES[place])
        _heat_map(figure, heat_axes, *list(found.items())[-1], rank)
    save(figure, path)


def _curves(axes: Axes, found: dict[Bucket, Statistics]) -> None:
    colours = plt.get_cmap("viridis")(numpy.linspace(0, 0.85, len(found)))
    last = 1
    for (bucket, statistics), colour in zip(found.items(), colours, strict=True):
        mean = statistics.curve().mean((0, 1)).numpy()
        low, high = (statistics.curve_quantile(share).numpy() for share in SPREAD)
        ranks = numpy.arange(1, len(mean) + 1)
        label = f"{bucket} ({statistics.sentences:,} sentences)"
        axes.plot(ranks, mean, color=colour, label=label)
        axes.fill_between(ranks, low, high, color=colour, alpha=0.15, linewidth=0)
        last = max(last, int(numpy.argmax(mean > 0.999)) + 1)
    axes.set(xlim=(1, last), ylim=(0, 1.02), xlabel="rank", ylabel="cumulative singular values")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", loc="lower right")


def _heat_map(figure: Figure, axes: Axes, bucket: Bucket, statistics: Statistics, rank: int) -> None:
    curve = statistics.curve()
    shares = curve[:, :, min(rank, curve.size(-1)) - 1]
    image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    layers, heads = curve.shape[:2]
    axes.set(xlabel="head", ylabel="layer")
    axes.set_xticks(range(heads), range(1, heads + 1))
    axes.set_yticks(range(layers), range(1, layers + 1))
    axes.set_title(f"at rank {rank}, {bucket}", fontsize="medium")
    figure.colorbar(image, ax=axes)
