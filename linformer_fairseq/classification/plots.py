"""The picture of the study, from what results.json holds."""

import statistics
from pathlib import Path

from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import BASELINE_STYLE, save
from linformer_fairseq.masked_lm.arms import BASELINE
from linformer_fairseq.recipe.merging import Found

from .arguments import ACCURACY
from .sets import TEST
from .tables import label, rows_of

PICTURE = "accuracy.png"


def write_plots(found: Found, out: Path) -> dict[str, str]:
    """Draws the accuracy of every model on every test set, and returns the file by what it shows."""
    names, arms = list(found["sets"]), list(found["arms"])
    size = (1.8 + 3.4 * len(names), 1.2 + 0.4 * len(arms))
    figure, grid = plt.subplots(1, len(names), figsize=size, layout="constrained", squeeze=False, sharey=True)
    for axes, name in zip(grid[0], names, strict=True):
        for place, arm in enumerate(arms):
            values = [row[TEST][ACCURACY] for row in rows_of(found, name, arm)]
            if values:
                colour = "black" if arm == BASELINE else f"C{place % 10}"
                axes.scatter(values, [place] * len(values), s=14, color=colour, alpha=0.4)
                axes.scatter([statistics.mean(values)], [place], s=60, marker="D", color=colour)
                if arm == BASELINE:
                    axes.axvline(statistics.mean(values), **BASELINE_STYLE, linewidth=1)
        axes.set_title(name, fontsize="medium")
        axes.set(xlabel="accuracy (test), %", yticks=range(len(arms)), yticklabels=[label(found, arm) for arm in arms])
        axes.grid(alpha=0.3)
    grid[0][0].set_ylim(len(arms) - 0.5, -0.5)  # the first model at the top
    save(figure, out / PICTURE)
    return {"Accuracy on the test sets: means over seeds, and each seed": PICTURE}
