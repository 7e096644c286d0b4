"""Pictures, the same in every report."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

BASELINE_STYLE = {"color": "black", "linestyle": "--"}
DOTS_PER_INCH = 150


def save(figure: Figure, path: Path) -> None:
    """Writes a picture in one move, and lets it go."""
    part = path.with_name(f"{path.stem}.part.png")
    figure.savefig(part, dpi=DOTS_PER_INCH)
    plt.close(figure)
    part.replace(path)
