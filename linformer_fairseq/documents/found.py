"""Looking things up in what results.json holds."""

from collections.abc import Sequence

import numpy

from linformer_fairseq.cli.tables import UNKNOWN, with_interval
from linformer_fairseq.recipe.merging import Found

from .arms import FUSED, SENTENCES, START, TRANSFORMER
from .translate import FORCED, Way

_INTERVAL = ("mean", "low", "high")


def way_of(row: Found) -> Way:
    """Returns the way in which the translation of a row was made."""
    return Way(row["set"], row["longest"], row["mode"])


def is_of(row: Found, way: Way) -> bool:
    """Returns whether a row belongs to a way; what is translated sentence by sentence is the same at every length."""
    if row["arm"] == SENTENCES.name:
        return row["set"] == way.set_name and way.mode == FORCED
    return way_of(row) == way


def label(found: Found, arm: str) -> str:
    """Returns what tables call a model."""
    others = {own.name: own.label for own in (START, FUSED)}
    return others[arm] if arm in others else found["arms"][arm]["label"]


def rows_of(found: Found, way: Way) -> dict[str, list[Found]]:
    """Returns the rows of every model, a row a seed, of a way to translate."""
    by_arm: dict[str, list[Found]] = {}
    for row in found["rows"]:
        if is_of(row, way):
            by_arm.setdefault(row["arm"], []).append(row)
    return {arm: by_arm[arm] for arm in found["arms"] if arm in by_arm}


def ways_in(found: Found, set_name: str, mode: str = FORCED) -> list[Way]:
    """Returns the ways in which a set was translated, by length."""
    lengths = {row["longest"] for row in found["rows"] if (row["set"], row["mode"]) == (set_name, mode)}
    return [Way(set_name, length, mode) for length in sorted(lengths)]


def difference_of(found: Found, arm: str, way: Way, base: str = TRANSFORMER) -> Found | None:
    """Returns how far a model is from another; None where that is not known."""
    rows = (row for row in found["differences"] if (row["arm"], row["from"]) == (arm, base))
    return next((row for row in rows if way_of(row) == way), None)


def interval(difference: Found | None) -> str:
    """Returns a difference and the interval that it lies in, for a table."""
    return UNKNOWN if difference is None else with_interval(*(difference[name] for name in _INTERVAL))


def interval_in_points(difference: Found | None) -> str:
    """Returns a difference of shares and the interval that it lies in, in points of 100."""
    return UNKNOWN if difference is None else with_interval(*(100 * difference[name] for name in _INTERVAL), digits=1)


def mean(rows: Sequence[Found], name: str) -> float | None:
    """Returns the mean of a fact over the seeds; None where one does not have it."""
    values = [row[name] for row in rows]
    return None if None in values else float(numpy.mean(values))


def glossary_means(rows: Sequence[Found]) -> list[float]:
    """Returns the share of names that are translated as their glossary says, by distance, as a mean over the seeds."""
    return numpy.mean([[own["score"] for own in row["glossary"]] for row in rows], axis=0).tolist()


def cost_rows(found: Found, part: str) -> dict[int, dict[str, Found]]:
    """Returns what was measured of training or translation, by length and model."""
    rows: dict[int, dict[str, Found]] = {}
    for row in found["costs"]["rows"] if found.get("costs") else ():
        if row["part"] == part:
            rows.setdefault(row["length"], {})[row["arm"]] = row
    return rows
