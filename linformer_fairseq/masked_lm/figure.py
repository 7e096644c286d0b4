"""What the paper's Figure 3 shows: validation perplexity against updates, by k, by sharing and by length."""

from collections.abc import Callable, Sequence
from typing import Any

from linformer_fairseq.recipe.merging import Found

from .arms import BASELINE, EVERY_LENGTH, LINFORMER
from .trainings import SHARING

Panel = dict[str, tuple[bool, list[tuple[float, float]]]]
"""For every line its name, whether it is the Transformer's, and its points."""


def curves(found: Found) -> dict[str, Panel]:
    """Returns the panels of the figure by title, of the first seed; one that compares nothing is left out."""
    rows = first_seeds(found["trainings"])
    lengths = sorted({row["length"] for row in rows})
    panels: dict[str, Panel] = {}
    if not lengths:
        return panels
    k = found["k"]
    usual = [row for row in rows if row["k"] in (0, k) and row["sharing"] in ("", SHARING)]
    panels[f"all kinds, n = {lengths[0]:,}, k = {k}"] = _lines(
        [row for row in usual if row["length"] == lengths[0]], lambda row: _label(found, row)
    )
    for length in lengths[:2]:
        own = [
            row
            for row in rows
            if row["length"] == length
            and (row["arm"] == BASELINE or (row["arm"] == LINFORMER and row["sharing"] == SHARING))
        ]
        panels[f"Linformer's k, n = {length:,}"] = _lines(own, lambda row: f"{_label(found, row)}{_k(row)}")
    shared = [
        row
        for row in rows
        if row["length"] == lengths[0] and (row["arm"] == BASELINE or (row["arm"] == LINFORMER and row["k"] == k))
    ]
    panels[f"who shares a projection, n = {lengths[0]:,}, k = {k}"] = _lines(
        shared, lambda row: f"{_label(found, row)}{', ' * bool(row['sharing'])}{row['sharing']}"
    )
    if len(lengths) > 1:
        panels[f"length, k = {k}"] = _lines(
            [row for row in usual if row["arm"] in EVERY_LENGTH],
            lambda row: f"{_label(found, row)}, n = {row['length']:,}",
        )
    return {title: lines for title, lines in panels.items() if _compares(lines)}


def _compares(lines: Panel) -> bool:
    """Returns whether a panel has several lines beside the Transformer's."""
    return sum(not is_baseline for is_baseline, _ in lines.values()) > 1


def first_seeds(rows: Sequence[Found]) -> list[Found]:
    """Returns the rows of the lowest seed of every model."""
    seeds: dict[tuple[Any, ...], Found] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        seeds.setdefault((row["arm"], row["length"], row["k"], row["sharing"]), row)
    return [row for row in rows if row in seeds.values()]


def _lines(rows: Sequence[Found], name: Callable[[Found], str]) -> Panel:
    return {name(row): (row["arm"] == BASELINE, [tuple(point) for point in row["curve"]]) for row in rows}


def _label(found: Found, row: Found) -> str:
    return str(found["arms"][row["arm"]]["label"])


def _k(row: Found) -> str:
    return f", k = {row['k']}" if row["k"] else ""
