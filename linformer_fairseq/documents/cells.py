"""Cells of the report's tables, from what results.json holds."""

from collections.abc import Callable

from linformer_fairseq.cli.tables import UNKNOWN, table
from linformer_fairseq.recipe.merging import Found

from .arms import TRANSFORMER
from .found import difference_of, glossary_means, interval, interval_in_points, label, mean, rows_of
from .translate import Way


def number(value: float | None, form: str) -> str:
    """Returns a figure in a format of Python's, or what stands where there is none."""
    return UNKNOWN if value is None else format(value, form)


def score_cell(found: Found, arm: str, way: Way, base: str = TRANSFORMER) -> str:
    """Returns d-BLEU, and its difference from that of another model."""
    rows = rows_of(found, way).get(arm)
    if not rows:
        return UNKNOWN
    difference = difference_of(found, arm, way, base)
    score = f"{mean(rows, 'd_bleu'):.2f}"
    return score if difference is None else f"{score} ({interval(difference)})"


def name_cells(found: Found, arm: str, way: Way, base: str = TRANSFORMER) -> list[str]:
    """Returns the share of names that are translated as their glossary says, in per cent by distance, each with its
    difference from that of another model."""
    cells = [f"{100 * share:.1f}" for share in glossary_means(rows_of(found, way)[arm])]
    if difference := difference_of(found, arm, way, base):
        intervals = map(interval_in_points, difference["glossary"])
        cells = [f"{cell} ({own})" for cell, own in zip(cells, intervals, strict=True)]
    return cells


def each_seed(
    found: Found, by_arm: dict[str, list[Found]], headers: list[str], cells: Callable[[Found], list[str]]
) -> list[str]:
    """Returns a table with a line for every seed of the models that have several; nothing where none has."""
    lines = [
        [label(found, arm), str(row["seed"]), *cells(row)]
        for arm, rows in by_arm.items()
        if len(rows) > 1
        for row in rows
    ]
    return ["Each seed by itself:", table(["Model", "Seed", *headers], lines)] if lines else []
