"""Pictures of attention modules: time and memory of a sentence against its length, with the slopes of both."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib import colormaps
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb

from linformer_fairseq.cli.figures import BASELINE_STYLE

from ..plots import dress, lines, save_with_legend
from .contenders import CONTENDERS, EAGER, FUSED, OURS, TWO_LEVELS
from .module_grid import BACKWARD, FORWARD, ModuleRow
from .settings import EfficiencySettings
from .targets import peak, seconds, slope

FILES = {FORWARD: "modules-forward.png", BACKWARD: "modules-backward.png"}
MARKERS = "^vhosDPX*d<>pH"
RED = "C3"
COLOURS = [colour for colour in colormaps["tab20"].colors if colour != to_rgb(RED)]
STYLES = {
    contender.name: {"marker": marker, "color": colour}
    for contender, marker, colour in zip(CONTENDERS, MARKERS, COLOURS[: len(MARKERS)], strict=True)
} | {
    EAGER: {"marker": "^", **BASELINE_STYLE},
    FUSED: {"marker": "v", **BASELINE_STYLE, "color": "dimgrey"},
    OURS: {"marker": "o", "color": RED, "linewidth": 3.0},
    TWO_LEVELS: {"marker": "s", "color": RED, "linewidth": 3.0, "linestyle": ":"},
}


def draw(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> None:
    """A picture for each pass, with every contender once."""
    for passes, name in FILES.items():
        own = [row for row in rows if row.passes == passes and row.k in (None, settings.table_k)]
        _draw(own, passes, settings, folder / name)


def _draw(rows: Sequence[ModuleRow], passes: str, settings: EfficiencySettings, path: Path) -> None:
    names = dict.fromkeys(row.contender for row in rows if row.time)
    labels = {name: _label(name, [row for row in rows if row.contender == name]) for name in names}
    styles = {label: STYLES[name] for name, label in labels.items()}
    shown = [row for row in rows if row.contender in labels]
    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(12, 7), layout="constrained")
    for axes, value, scale, title, unit in (
        (time_axes, seconds, 1e3, "time", "ms"),
        (memory_axes, peak, 1e-6, "peak memory", "MB"),
    ):
        lines(
            axes,
            shown,
            lambda row: labels[row.contender],
            lambda row: row.length,
            lambda row, value=value, scale=scale: (amount := value(row)) and scale * amount / row.sentences,
            styles,
        )
        dress(axes, f"{passes}: {title}", "tokens of a sentence", f"{title} of a sentence, {unit}", settings.lengths)
    save_with_legend(figure, time_axes, path, columns=2, title="slopes of time and of memory")


def _label(name: str, rows: Sequence[ModuleRow]) -> str:
    """With the slopes of its lines, that of time first."""
    slopes = [slope(rows, value) for value in (seconds, peak)]
    if None in slopes:
        return name
    return "{}: n^{:.2f}, n^{:.2f}".format(name, *slopes)
