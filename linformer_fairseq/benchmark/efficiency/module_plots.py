"""Pictures of attention modules: time and memory of a sentence against its length, with the slopes of both."""

from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from linformer_fairseq.cli.figures import BASELINE_STYLE

from ..plots import dress, lines, save_with_legend
from .contenders import CONTENDERS, EAGER, FUSED, OURS, TWO_LEVELS
from .module_grid import BACKWARD, FORWARD, ModuleRow
from .settings import EfficiencySettings
from .slope import PEAK, SECONDS, slope

FILES = {FORWARD: "modules-forward.png", BACKWARD: "modules-backward.png"}
MARKERS = "^vhosDPX*d<>pH"
RED = "C3"
COLOURS = [colour for colour in colormaps["tab20"].colors if colour != to_rgb(RED)]


def styles(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Returns a style for each contender's line, another one for each as far as markers and colours go."""
    cycled = {
        name: {"marker": marker, "color": colour}
        for name, marker, colour in zip(names, cycle(MARKERS), cycle(COLOURS), strict=False)
    }
    return cycled | {
        EAGER: {"marker": "^", **BASELINE_STYLE},
        FUSED: {"marker": "v", **BASELINE_STYLE, "color": "dimgrey"},
        OURS: {"marker": "o", "color": RED, "linewidth": 3.0},
        TWO_LEVELS: {"marker": "s", "color": RED, "linewidth": 3.0, "linestyle": ":"},
    }


def draw(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> None:
    """Draws a picture for each pass, with every contender once."""
    for passes, name in FILES.items():
        own = [row for row in rows if row.passes == passes and row.k in (None, settings.table_k)]
        _draw(own, passes, settings, folder / name)


def _draw(rows: Sequence[ModuleRow], passes: str, settings: EfficiencySettings, path: Path) -> None:
    names = dict.fromkeys(row.contender for row in rows if row.time)
    labels = {name: _label(name, [row for row in rows if row.contender == name]) for name in names}
    all_styles = styles(contender.name for contender in CONTENDERS)
    shown = [row for row in rows if row.contender in labels]
    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(12, 7), layout="constrained")
    for axes, value, scale, title, unit in (
        (time_axes, SECONDS, 1e3, "time", "ms"),
        (memory_axes, PEAK, 1e-6, "peak memory", "MB"),
    ):
        lines(
            axes,
            shown,
            lambda row: labels[row.contender],
            lambda row: row.length,
            lambda row, value=value, scale=scale: (amount := value(row)) and scale * amount / row.sentences,
            {label: all_styles[name] for name, label in labels.items()},
        )
        dress(axes, f"{passes}: {title}", "tokens of a sentence", f"{title} of a sentence, {unit}", settings.lengths)
    save_with_legend(figure, time_axes, path, columns=2, title="slopes of time and of memory")


def _label(name: str, rows: Sequence[ModuleRow]) -> str:
    """Returns a name with the slopes of its lines, that of time first."""
    slopes = [slope(rows, value) for value in (SECONDS, PEAK)]
    if None in slopes:
        return name
    return "{}: n^{:.2f}, n^{:.2f}".format(name, *slopes)
