"""Style and saving of the reports' pictures."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from .files import replacing

BASELINE_STYLE = {"color": "black", "linestyle": "--"}
DOTS_PER_INCH = 150


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG in one move, and closes it."""
    with replacing(path) as part:
        figure.savefig(part, dpi=DOTS_PER_INCH, format="png")
        plt.close(figure)
