"""Pictures of the study."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy
from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import save

from .report import by_k, groups
from .results import Result, gains
from .variants import BASELINE

FEWEST = 50
"""Sentences of a bucket that is drawn where there are larger ones: the BLEU of fewer is chance."""


def can_be_drawn(results: Sequence[Result]) -> bool:
    """Whether there is a baseline, and anything to hold against it."""
    ks = {result.training.model.k for result in results}
    return 0 in ks and len(ks) > 1


def against_length(results: Sequence[Result], path: Path) -> None:
    """For every k how far BLEU is from the baseline's mean, by the length of the source: means and seeds."""
    found = groups(results)
    colours = dict(
        zip(dict.fromkeys(name for name, k in found if k), cycle(plt.get_cmap("tab10").colors), strict=False)
    )
    baseline = found[BASELINE, 0]
    ks = sorted({group[1] for group in found} - {0})
    figure, grid = plt.subplots(
        1, len(ks), figsize=(5.2 * len(ks), 4.4), layout="constrained", squeeze=False, sharey=True
    )
    for axes, k in zip(grid[0], ks, strict=True):
        subset = baseline[0].subset
        sizes = {bucket: int(subset.within(bucket).sum()) for bucket in by_k(k)}
        lengths = [bucket for bucket, size in sizes.items() if size >= min(FEWEST, max(sizes.values()))]
        own_groups = [group for group in found if group[1] == k]
        places = numpy.arange(len(lengths))
        for i, group in enumerate(own_groups):
            shift = 0.08 * (i - (len(own_groups) - 1) / 2)
            colour = colours[group[0]]
            gained = numpy.transpose([gains(found[group], baseline, subset.within(bucket)) for bucket in lengths])
            axes.plot(places + shift, gained.mean(0), marker="o", color=colour, label=group[0])
            for seed in gained:
                axes.scatter(places + shift, seed, s=10, color=colour, alpha=0.5)
        axes.axhline(0, color="black", linestyle="--", linewidth=1)
        axes.set_xticks(places, [f"{bucket}\n{sizes[bucket]} sentences" for bucket in lengths])
        axes.set(title=f"k = {k}", xlabel="length of the source")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    grid[0][0].set_ylabel("BLEU against the Transformer's mean")
    save(figure, path)
