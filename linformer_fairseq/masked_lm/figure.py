"""What the paper's Figure 3 shows: validation perplexity against updates, by k, by sharing and by length."""

from collections.abc import Callable, Sequence
from typing import Any

from linformer_fairseq.recipe.merging import Found

from .arms import BASELINE, LINFORMER
from .trainings import SHARING

Panel = dict[str, tuple[bool, list[tuple[float, float]]]]
"""For every line its name, whether it is the Transformer's, and its points."""


def curves(found: Found) -> dict[str, Panel]:
    """Returns the panels of the figure by title, of the first seed; one that compares nothing is left out."""
    rows = first_seeds(found["trainings"])
    lengths = sorted({row["length"] for row in rows})
    k = found["k"]
    panels: dict[str, Panel] = {}

    def add(title: str, rows: Sequence[Found], name: Callable[[Found], str]) -> None:
        if len(rows) > 1:
            lines = {name(row): (row["arm"] == BASELINE, [tuple(point) for point in row["curve"]]) for row in rows}
            panels[title] = lines

    def label(row: Found) -> str:
        return str(found["arms"][row["arm"]]["label"])

    usual = [row for row in rows if row["k"] in (0, k) and row["sharing"] in ("", SHARING)]
    for length in lengths:
        add(f"kinds, n = {length:,}, k = {k}", [row for row in usual if row["length"] == length], label)
    for length in lengths[:2]:
        baseline, linformers = _of_linformer(rows, length)
        own = sorted((row for row in linformers if row["sharing"] == SHARING), key=lambda row: row["k"])
        if len(own) > 1:
            add(f"Linformer's k, n = {length:,}", [*baseline, *own], lambda row: f"{label(row)}{_k(row)}")
    for length in lengths[:1]:
        baseline, linformers = _of_linformer(rows, length)
        own = [row for row in linformers if row["k"] == k]
        if len(own) > 1:
            title = f"sharing, n = {length:,}, k = {k}"
            add(title, [*baseline, *own], lambda row: ", ".join(filter(None, (label(row), row["sharing"]))))
    linformers = [row for row in usual if row["arm"] == LINFORMER]
    add(f"Linformer's n, k = {k}", linformers, lambda row: f"n = {row['length']:,}")
    return panels


def _of_linformer(rows: Sequence[Found], length: int) -> tuple[list[Found], list[Found]]:
    """Returns the Transformer's and Linformer's rows of a length."""
    here = [row for row in rows if row["length"] == length]
    return [row for row in here if row["arm"] == BASELINE], [row for row in here if row["arm"] == LINFORMER]


def first_seeds(rows: Sequence[Found]) -> list[Found]:
    """Returns the rows of the lowest seed of every model."""
    seeds: dict[tuple[Any, ...], Found] = {}
    for row in sorted(rows, key=lambda row: row["seed"]):
        seeds.setdefault((row["arm"], row["length"], row["k"], row["sharing"]), row)
    return [row for row in rows if row in seeds.values()]


def _k(row: Found) -> str:
    return f", k = {row['k']}" if row["k"] else ""
