"""Pictures of the study, from what results.json holds."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy
from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import save

from .report import Row, Variants, gains, groups, in_bucket
from .results import by_k
from .variants import BASELINE

FEWEST = 50
"""A bucket with fewer sentences is left out where there are larger ones: its BLEU is noise."""


def against_length(rows: Sequence[Row], variants: Variants, path: Path) -> None:
    """Draws, a panel for each k, how far BLEU is from the baseline's mean by source length: means and seeds."""
    found = groups(rows)
    baseline = found.pop((BASELINE, 0))
    names = dict.fromkeys(name for name, _ in found)
    colours = dict(zip(names, cycle(plt.get_cmap("tab10").colors), strict=False))
    ks = sorted({k for _, k in found})
    figure, grid = plt.subplots(
        1, len(ks), figsize=(5.2 * len(ks), 4.4), layout="constrained", squeeze=False, sharey=True
    )
    for axes, k in zip(grid[0], ks, strict=True):
        sizes = {bucket: own["sentences"] for bucket in by_k(k) if (own := in_bucket(baseline[0], bucket))}
        lengths = [bucket for bucket, size in sizes.items() if size >= min(FEWEST, max(sizes.values()))]
        own_groups = {name: own for (name, own_k), own in found.items() if own_k == k}
        places = numpy.arange(len(lengths))
        for i, (name, own) in enumerate(own_groups.items()):
            shifted = places + 0.08 * (i - (len(own_groups) - 1) / 2)
            gained = numpy.transpose([gains(own, baseline, bucket) for bucket in lengths])
            axes.plot(shifted, gained.mean(0), marker="o", color=colours[name], label=variants[name].label)
            for seed in gained:
                axes.scatter(shifted, seed, s=10, color=colours[name], alpha=0.5)
        axes.axhline(0, color="black", linestyle="--", linewidth=1)
        axes.set_xticks(places, [f"{bucket}\n{sizes[bucket]} sentences" for bucket in lengths])
        axes.set(title=f"k = {k}", xlabel="length of the source")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    grid[0][0].set_ylabel("BLEU against the Transformer's mean")
    save(figure, path)
