"""Pictures, the same in every report."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from .files import replacing

BASELINE_STYLE = {"color": "black", "linestyle": "--"}
DOTS_PER_INCH = 150


def save(figure: Figure, path: Path) -> None:
    """Writes a PNG in one move, and lets the figure go."""
    with replacing(path) as part:
        figure.savefig(part, dpi=DOTS_PER_INCH, format="png")
        plt.close(figure)
