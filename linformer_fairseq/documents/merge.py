"""Putting the results of one study of documents on several machines together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import merging
from linformer_fairseq.recipe.merging import Found, check_new, check_settings, joined, joined_costs

from .arms import ARMS, START
from .found import way_of

OWN = ("commands", "machines", "arms", "trainings", "costs", "rows", "differences")
"""What each machine's results have of their own; all else has to be the same."""
SETTINGS = "settings"
"""What decides the models, name by name."""
REFERENCE_LENGTH = 1
"""Where the counts of BLEU have the length of the reference."""


def read_results(path: Path) -> Found:
    """Returns the content of a results.json.

    Raises:
        UserError: there is none at this path, or it is of something else.
    """
    return merging.read_results(path, (*OWN, "corpus", "documents"), "a study of documents")


def merged(own: Found, others: Sequence[tuple[Path, Found]]) -> Found:
    """Returns results with the models and seeds that others have beside them; the differences between models are left
    to be made.

    Raises:
        UserError: results are of another study, or have a model with a seed that is there already.
    """
    found = {**own}
    for path, other in others:
        check_same(path, found, other)
        for name in ("commands", "machines"):
            found[name] = joined(found[name], other[name])
        found["trainings"] = joined(found["trainings"], other["trainings"], _model_of)  # both have the starts, if any
        found["rows"] = [*found["rows"], *other["rows"]]
        found["arms"] = {**found["arms"], **other["arms"]}
        found["costs"] = joined_costs(path, found["costs"], other["costs"], _cost_of)
    return {**found, "arms": {name: found["arms"][name] for name in ARMS if name in found["arms"]}}


def _cost_of(row: Found) -> tuple[str, int, str]:
    return row["part"], row["length"], row["arm"]


def check_same(path: Path, found: Found, other: Found) -> None:
    """Looks whether the results of a file are of the same study as `found`, which may not have all of its own yet.

    Raises:
        UserError: they are not, or have a model with a seed that is there already.
    """
    check_settings(path, _common(found), _common(other))
    references = {way_of(row): _reference_lengths(row) for row in found["rows"]}
    for row in other["rows"]:
        if references.get(way_of(row), _reference_lengths(row)) != _reference_lengths(row):
            raise UserError(f"{path} is of other documents: prepare both studies with the same text and settings.")
    models = [row for row in found["trainings"] if row["arm"] != START.name]  # each machine has its starts
    check_new(path, models, other["trainings"], _model_of, lambda row: f"{row['arm']} with seed {row['seed']}")


def _common(found: Found) -> Found:
    """Returns what is the same in all results of a study."""
    return {name: found[name] for name in found.keys() - {*OWN, SETTINGS}} | found.get(SETTINGS, {})


def _reference_lengths(row: Found) -> list[Any]:
    return [counts[REFERENCE_LENGTH] for counts in row["counts"]]


def _model_of(row: Found) -> tuple[str, int]:
    return row["arm"], row["seed"]
