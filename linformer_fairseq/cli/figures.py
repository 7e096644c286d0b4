"""Style and saving of the reports' pictures."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")  # no display is needed
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from .files import replacing

BASELINE_STYLE = {"color": "black", "linestyle": "--"}
DOTS_PER_INCH = 150


def logarithmic(axes: Axes) -> None:
    """Gives axes a logarithmic y with plain numbers, at 1, 2 and 5 times the powers of ten, and a grid."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


def save(figure: Figure, path: Path) -> None:
    """Writes a figure as PNG in one move, and closes it."""
    with replacing(path) as part:
        figure.savefig(part, dpi=DOTS_PER_INCH, format="png")
        plt.close(figure)
