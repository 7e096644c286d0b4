"""What a report shows of attention modules: tables, and pictures of time and memory with the slopes of both."""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np

from linformer_fairseq.cli.tables import UNKNOWN, table

from .. import plots
from ..plots import BASELINE, RED, Panel, Style
from ..report import crossing, listing, megabytes, milliseconds, quartiles, ratio
from .contenders import CONTENDERS, EAGER, FAIRSEQ, FUSED, OURS, OWN, TWO_LEVELS, WITH_K
from .machine_peak import linformer_operations
from .module_grid import BACKWARD, FORWARD, PRODUCT, Key, ModuleRow
from .peers import Sizes
from .settings import EfficiencySettings

FILES = {FORWARD: "modules-forward.png", BACKWARD: "modules-backward.png"}
Value = Callable[[ModuleRow], float | None]
"""Seconds or bytes per batch."""
SECONDS: Value = attrgetter("seconds")
PEAK: Value = attrgetter("peak_bytes")
OWN_NAMES = tuple(contender.name for contender in OWN)


def grid(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Draws the pictures, and returns all sections on modules against length."""
    draw(rows, settings, folder)
    k = settings.table_k
    parts = [
        "## Attention modules",
        f"Self-attention with its linear layers, {settings.dim} features, {settings.heads} heads, no dropout, no "
        f"padding; batches of {settings.tokens:,} tokens, or of one longer sentence. Peak memory is what a pass takes "
        "beyond input and parameters, gradients included: on a GPU by the allocator's count, elsewhere by adding up "
        f"torch's own list of what it allocates and frees. “{EAGER}” also averages its weights over the heads, as "
        f"fairseq gives no others; “{FAIRSEQ}” is torch's fused attention within fairseq's module.",
        *(f"![Time and memory against length, {passes}, k = {k}]({name})" for passes, name in FILES.items()),
    ]
    for passes in dict.fromkeys(row.passes for row in rows):
        own = [row for row in rows if row.passes == passes]
        for name in (EAGER, FUSED):
            parts += [
                f"### {name}, as multiples of {OURS}, {passes}",
                "As in table 3 of Wang et al. (2020): time, then peak memory.",
                _ratios(own, name, SECONDS, settings),
                _ratios(own, name, PEAK, settings),
            ]
        parts += [
            f"### All modules, k = {k}, {passes}",
            "Milliseconds per batch, then peak MB. The slope is the exponent of a sentence's time, or memory, against "
            "its length, over all lengths that the row has: 1 is linear, 2 quadratic.",
            *_against_length([row for row in own if row.k in (None, k)], settings),
            f"### linformer_fairseq, every k, {passes}",
            *_against_length([row for row in own if row.contender in OWN_NAMES], settings),
            f"### Modules with k slots, as multiples of {OURS}, {passes}",
            "Time and peak memory with the same k.",
            _with_k(own, settings),
        ]
    parts += [
        "### Share of the machine's peak",
        f"Forward: the operations of Linformer's matrix products, as formulas count them, as a share of those that a "
        f"{PRODUCT.contender} makes in the same time; the two are timed in turn.",
        _share_of_peak(rows, settings),
    ]
    return parts


def equal(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Returns the section on sentences with a slot for every token."""
    ours = {(row.length, row.passes): row.seconds for row in rows if row.contender == OURS}
    columns: dict[str, Callable[[ModuleRow], str]] = {
        "Attention": lambda row: row.contender,
        "Pass": lambda row: row.passes,
        "n = k": lambda row: f"{row.length:,}",
        "Sentences": lambda row: f"{row.sentences:,}",
        "ms": lambda row: milliseconds(row.time),
        "Quartiles": lambda row: quartiles(row.time),
        "Time / Linformer's": lambda row: ratio(row.seconds, ours.get((row.length, row.passes))),
    }
    shown = [row for row in rows if row.contender in (EAGER, FAIRSEQ, FUSED, *WITH_K)]
    return ["## A slot for every token, n = k", listing(shown, columns)]


def left_out(rows: Sequence[ModuleRow]) -> list[str]:
    """Returns the section that says why modules have no time."""
    notes: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        if row.note:
            notes.setdefault((str(row.key), row.note), []).append(f"{row.length:,} ({row.passes})")
    if not notes:
        return []
    return [
        "## Modules that were not measured",
        table(["Attention", "Tokens", "Why"], [[name, "; ".join(where), why] for (name, why), where in notes.items()]),
    ]


def _by_key(rows: Sequence[ModuleRow]) -> dict[tuple[Key, int], ModuleRow]:
    return {(row.key, row.length): row for row in rows}


def _lengths(settings: EfficiencySettings) -> dict[str, int]:
    """Returns the lengths under their headings."""
    return {f"{n:,}": n for n in settings.lengths}


def _ratios(rows: Sequence[ModuleRow], name: str, value: Value, settings: EfficiencySettings) -> str:
    measured = _by_key(rows)

    def cell(length: int, k: int) -> str:
        theirs, ours = measured.get((Key(name, None), length)), measured.get((Key(OURS, k), length))
        return ratio(theirs and value(theirs), ours and value(ours))

    return crossing("Tokens", _lengths(settings), {f"k = {k}": k for k in settings.k}, cell)


def _against_length(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> list[str]:
    """Returns a table of times and one of memory, with a line for each module."""
    measured = _by_key(rows)
    keys = {str(row.key): row.key for row in rows}

    def lines(show: Callable[[ModuleRow], str], value: Value) -> str:
        def cell(key: Key, length: int | None) -> str:
            if length is None:
                exponent = slope([row for row in rows if row.key == key], value)
                return UNKNOWN if exponent is None else f"{exponent:.2f}"
            row = measured.get((key, length))
            return show(row) if row else UNKNOWN

        return crossing("Attention", keys, {**_lengths(settings), "Slope": None}, cell)

    return [
        lines(lambda row: milliseconds(row.time), SECONDS),
        lines(lambda row: megabytes(row.peak_bytes), PEAK),
    ]


def _with_k(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> str:
    measured = _by_key(rows)

    def cell(key: Key, n: int) -> str:
        theirs, ours = measured.get((key, n)), measured.get((Key(OURS, key.k), n))
        if not (theirs and ours):
            return UNKNOWN
        return f"{ratio(theirs.seconds, ours.seconds)} · {ratio(theirs.peak_bytes, ours.peak_bytes)}"

    keys = sorted({row.key for row in rows if row.contender in WITH_K and row.contender != OURS})
    return crossing("Attention", {str(key): key for key in keys}, _lengths(settings), cell)


def _share_of_peak(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> str:
    forward = [row for row in rows if row.passes == FORWARD]
    measured, rates = _by_key(forward), {row.length: row.product_rate for row in forward}

    def cell(k: int | None, n: int) -> str:
        if k is None:
            rate = rates.get(n)
            return f"{rate / 1e9:,.0f} GFLOP/s" if rate else UNKNOWN
        row = measured.get((Key(OURS, k), n))
        if row is None or row.seconds is None or row.product_rate is None:
            return UNKNOWN
        operations = linformer_operations(Sizes(settings.dim, settings.heads, n, k), row.sentences)
        return f"{100 * operations / row.seconds / row.product_rate:.0f} %"

    lines = {**{f"Linformer, k = {k}": k for k in settings.k}, PRODUCT.contender: None}
    return crossing("", lines, _lengths(settings), cell)


def slope(rows: Sequence[ModuleRow], value: Value) -> float | None:
    """Returns the exponent of a sentence's time, or memory, against its length, by least squares; None for one point.

    Args:
        rows: of one module.
    """
    points = {row.length: amount / row.sentences for row in rows if (amount := value(row))}
    if len(points) < 2:
        return None
    return float(np.polyfit(np.log(list(points)), np.log(list(points.values())), 1)[0])


def styles(names: Iterable[str]) -> dict[str, Style]:
    """Returns a style for each contender's line."""
    return plots.styles(names) | {
        EAGER: BASELINE,
        FUSED: {**BASELINE, "marker": "v", "color": "dimgrey"},
        OURS: {"marker": "o", "color": RED, "linewidth": 3.0},
        TWO_LEVELS: {"marker": "s", "color": RED, "linewidth": 3.0, "linestyle": ":"},
    }


def draw(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> None:
    """Draws a picture for each pass, with every contender once."""
    names = [*(contender.name for contender in CONTENDERS), *(row.contender for row in rows)]
    by_name = styles(dict.fromkeys(names))
    for passes, file in FILES.items():
        shown = [row for row in rows if row.passes == passes and row.k in (None, settings.table_k)]
        labels = {
            name: _label(name, [row for row in shown if row.contender == name])
            for name in dict.fromkeys(row.contender for row in shown if row.time)
        }
        panels = []
        for value, title, unit, scale in ((SECONDS, "time", "ms", 1e3), (PEAK, "peak memory", "MB", 1e-6)):
            points = [
                (labels[row.contender], row.length, amount and amount / row.sentences)
                for row in shown
                if row.contender in labels
                for amount in [value(row)]
            ]
            y_label = f"{title} per sentence, {unit}"
            panels.append(Panel(f"{passes}: {title}", "tokens per sentence", y_label, points, scale))
        line_styles = {label: by_name[name] for name, label in labels.items()}
        plots.draw(folder / file, panels, line_styles, (12, 7), columns=2, title="slopes of time and of memory")


def _label(name: str, rows: Sequence[ModuleRow]) -> str:
    """Returns a name with the slopes of its lines, that of time first."""
    slopes = [slope(rows, value) for value in (SECONDS, PEAK)]
    if None in slopes:
        return name
    return "{}: n^{:.2f}, n^{:.2f}".format(name, *slopes)
