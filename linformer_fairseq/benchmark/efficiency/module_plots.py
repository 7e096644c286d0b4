"""Pictures of attention modules: time and memory of a sentence against its length, with the slopes of both."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from matplotlib import pyplot as plt

from linformer_fairseq.cli.figures import BASELINE_STYLE

from .. import plots
from ..plots import RED, Style, panel, save_with_legend, scaled
from .contenders import CONTENDERS, EAGER, FUSED, OURS, TWO_LEVELS
from .module_grid import BACKWARD, FORWARD, ModuleRow
from .settings import EfficiencySettings
from .slope import PEAK, SECONDS, slope

FILES = {FORWARD: "modules-forward.png", BACKWARD: "modules-backward.png"}


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Returns a style for each contender's line."""
    return plots.styles(names) | {
        EAGER: {"marker": "^", **BASELINE_STYLE},
        FUSED: {"marker": "v", **BASELINE_STYLE, "color": "dimgrey"},
        OURS: {"marker": "o", "color": RED, "linewidth": 3.0},
        TWO_LEVELS: {"marker": "s", "color": RED, "linewidth": 3.0, "linestyle": ":"},
    }


def draw(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> None:
    """Draws a picture for each pass, with every contender once."""
    for passes, name in FILES.items():
        own = [row for row in rows if row.passes == passes and row.k in (None, settings.table_k)]
        _draw(own, passes, folder / name)


def _draw(rows: Sequence[ModuleRow], passes: str, path: Path) -> None:
    names = dict.fromkeys(row.contender for row in rows if row.time)
    labels = {name: _label(name, [row for row in rows if row.contender == name]) for name in names}
    by_name = styles(contender.name for contender in CONTENDERS)
    line_styles = {label: by_name[name] for name, label in labels.items()}
    figure, (time_axes, memory_axes) = plt.subplots(1, 2, figsize=(12, 7), layout="constrained")
    for axes, value, scale, title, unit in (
        (time_axes, SECONDS, 1e3, "time", "ms"),
        (memory_axes, PEAK, 1e-6, "peak memory", "MB"),
    ):
        points = [
            (labels[row.contender], row.length, scaled(scale / row.sentences, value(row)))
            for row in rows
            if row.contender in labels
        ]
        panel(axes, points, line_styles, f"{passes}: {title}", "tokens of a sentence", f"{title} of a sentence, {unit}")
    save_with_legend(figure, time_axes, path, columns=2, title="slopes of time and of memory")


def _label(name: str, rows: Sequence[ModuleRow]) -> str:
    """Returns a name with the slopes of its lines, that of time first."""
    slopes = [slope(rows, value) for value in (SECONDS, PEAK)]
    if None in slopes:
        return name
    return "{}: n^{:.2f}, n^{:.2f}".format(name, *slopes)
