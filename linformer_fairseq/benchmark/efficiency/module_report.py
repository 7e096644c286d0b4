"""What a report shows of attention modules: tables, and pictures of time and memory with the slopes of both."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

import numpy as np

from linformer_fairseq.cli.tables import UNKNOWN, table

from .. import plots
from ..plots import BASELINE, RED, THICK, Panel, Style
from ..report import crossing, listing, megabytes, milliseconds, quartiles, ratio
from .contenders import CONTENDERS, EAGER, FAIRSEQ, FUSED, OURS, OWN, TWO_LEVELS, WITH_K
from .machine_peak import linformer_operations
from .module_grid import BACKWARD, FORWARD, PRODUCT, Key, ModuleRow
from .peers import Sizes
from .settings import CAUSAL, CROSS, EQUAL, MODULES, EfficiencySettings

SLUGS = {FORWARD: "forward", BACKWARD: "backward"}
PICTURES = tuple(f"{part}-{slug}.png" for part in (MODULES, CROSS, CAUSAL) for slug in SLUGS.values())
Value = Callable[[ModuleRow], float | None]
"""Seconds or bytes per batch."""
SECONDS: Value = attrgetter("seconds")
PEAK: Value = attrgetter("peak_bytes")
OWN_NAMES = tuple(contender.name for contender in OWN)
NAMES = tuple(contender.name for contender in CONTENDERS)


def grid(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Draws the pictures, and returns all sections on modules against length."""
    rows = in_order(rows)
    k = settings.table_k
    parts = [
        "## Attention modules",
        f"Self-attention with its linear layers, {settings.dim} features, {settings.heads} heads, no dropout, no "
        f"padding; batches of {settings.tokens:,} tokens, or of one longer sentence. Peak memory is what a pass takes "
        "beyond input and parameters, gradients included: on a GPU by the allocator's count, elsewhere by adding up "
        f"torch's own list of what it allocates and frees. “{EAGER}” also averages its weights over the heads, as "
        f"fairseq gives no others; “{FAIRSEQ}” is torch's fused attention within fairseq's module.",
        *pictures(MODULES, rows, settings, folder),
    ]
    for passes in dict.fromkeys(row.passes for row in rows):
        own = [row for row in rows if row.passes == passes]
        for unit in [name for name in OWN_NAMES if any(row.contender == name for row in own)]:
            for name in (EAGER, FUSED):
                parts += [
                    f"### {name}, as multiples of {unit}, {passes}",
                    "As in table 3 of Wang et al. (2020): time, then peak memory.",
                    _ratios(own, name, unit, SECONDS, settings),
                    _ratios(own, name, unit, PEAK, settings),
                ]
        parts += [
            f"### All modules, k = {k}, {passes}",
            "Milliseconds per batch, then peak MB. The slope is the exponent of a sentence's time, or memory, against "
            "its length, over all lengths that the row has: 1 is linear, 2 quadratic.",
            *_against_length([row for row in own if row.k in (None, k)], settings),
            *_saved([row for row in own if row.k in (None, k)], settings),
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


def cross(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Draws the pictures, and returns the section on cross-attention."""
    what = (
        f"Cross-attention with its linear layers and as many queries as tokens, {settings.dim} features, "
        f"{settings.heads} heads, beside torch's fused attention"
    )
    return _place(CROSS, "Cross-attention", what, rows, settings, folder)


def causal(rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Draws the pictures, and returns the section on the decoder's self-attention."""
    what = (
        f"The decoder's self-attention with its linear layers, {settings.dim} features, {settings.heads} heads; “"
        f"{FUSED}” is torch's, with its own causal mask"
    )
    return _place(CAUSAL, "Causal self-attention", what, rows, settings, folder)


def _place(
    part: str, title: str, what: str, rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path
) -> list[str]:
    rows = in_order(rows)
    parts = [
        f"## {title}",
        f"{what}; on batches as under “Attention modules”: milliseconds per batch, then peak MB, and with the backward "
        "pass the MB that forward keeps for it beyond input and parameters.",
        *pictures(part, rows, settings, folder),
    ]
    for passes in dict.fromkeys(row.passes for row in rows):
        own = [row for row in rows if row.passes == passes]
        parts += [
            f"### {title}, {passes}",
            *_against_length(own, settings),
            *_saved(own, settings),
            f"### {title}, as multiples of “{FUSED}”, {passes}",
            "Time and peak memory.",
            _as_multiples(own, FUSED, [row.key for row in own if row.contender != FUSED], settings),
        ]
    return parts


def in_order(rows: Iterable[ModuleRow]) -> list[ModuleRow]:
    """Returns rows as tables show them: full attention, two levels, Linformer, and then what was measured besides."""
    places = {name: place for place, name in enumerate(NAMES)}
    return sorted(rows, key=lambda row: places.get(row.contender, len(places)))


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
    shown = [row for row in in_order(rows) if row.contender in (EAGER, FAIRSEQ, FUSED, *WITH_K)]
    shown.sort(key=lambda row: (row.length, row.passes != FORWARD))
    return ["## A slot for every token, n = k", listing(shown, columns)]


def left_out(rows: Mapping[str, Sequence[ModuleRow]]) -> list[str]:
    """Returns the section that says why modules of each part have no time."""
    notes: dict[tuple[str, str], list[str]] = {}
    for part, own in rows.items():
        where = "" if part in (MODULES, EQUAL) else f"{part}, "
        for row in own:
            if row.note:
                notes.setdefault((str(row.key), row.note), []).append(f"{row.length:,} ({where}{row.passes})")
    if not notes:
        return []
    return [
        "## Modules that were not measured",
        table(["Attention", "Tokens", "Why"], [[name, "; ".join(where), why] for (name, why), where in notes.items()]),
    ]


def _by_key(rows: Iterable[ModuleRow]) -> dict[tuple[Key, int], ModuleRow]:
    return {(row.key, row.length): row for row in rows}


def _lengths(settings: EfficiencySettings) -> dict[str, int]:
    """Returns the lengths under their headings."""
    return {f"{n:,}": n for n in settings.lengths}


def _ratios(rows: Sequence[ModuleRow], name: str, unit: str, value: Value, settings: EfficiencySettings) -> str:
    measured = _by_key(rows)

    def cell(length: int, k: int) -> str:
        theirs, ours = measured.get((Key(name, None), length)), measured.get((Key(unit, k), length))
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


def _saved(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> list[str]:
    """Returns a table of what forward keeps for backward, where that was measured."""
    measured = _by_key(row for row in rows if row.saved_bytes is not None)
    keys = {str(key): key for key, _ in measured}

    def cell(key: Key, length: int) -> str:
        row = measured.get((key, length))
        return megabytes(row.saved_bytes) if row else UNKNOWN

    table_of_saved = crossing("MB kept for backward", keys, _lengths(settings), cell)
    return [table_of_saved] if keys else []


def _with_k(rows: Sequence[ModuleRow], settings: EfficiencySettings) -> str:
    keys = [row.key for row in rows if row.contender in WITH_K and row.contender != OURS]
    return _as_multiples(rows, OURS, keys, settings)


def _as_multiples(rows: Sequence[ModuleRow], unit: str, keys: Iterable[Key], settings: EfficiencySettings) -> str:
    """Returns a table of time and peak memory over those of one contender, with the same k where it has one."""
    measured = _by_key(rows)

    def cell(key: Key, n: int) -> str:
        one, other = measured.get((key, n)), measured.get((Key(unit, key.k if unit in WITH_K else None), n))
        if not (one and other):
            return UNKNOWN
        return f"{ratio(one.seconds, other.seconds)} · {ratio(one.peak_bytes, other.peak_bytes)}"

    return crossing("Attention", {str(key): key for key in dict.fromkeys(keys)}, _lengths(settings), cell)


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
        TWO_LEVELS: {"marker": "s", "color": RED, "linewidth": THICK},
        OURS: {"marker": "o", "color": RED, "linewidth": THICK, "linestyle": ":"},
    }


def pictures(part: str, rows: Sequence[ModuleRow], settings: EfficiencySettings, folder: Path) -> list[str]:
    """Draws a picture for each pass, with every contender once, and returns the lines that show them."""
    by_name = styles(dict.fromkeys([*NAMES, *(row.contender for row in rows)]))
    lines = []
    for passes, slug in SLUGS.items():
        file = f"{part}-{slug}.png"
        what = "" if part == MODULES else f", {part}"
        lines.append(f"![Time and memory against length{what}, {passes}, k = {settings.table_k}]({file})")
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
    return lines


def _label(name: str, rows: Sequence[ModuleRow]) -> str:
    """Returns a name with the slopes of its lines, that of time first."""
    slopes = [slope(rows, value) for value in (SECONDS, PEAK)]
    if None in slopes:
        return name
    return "{}: n^{:.2f}, n^{:.2f}".format(name, *slopes)
