"""Putting the results of one study on several machines together."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json

from .arms import ARMS, START
from .found import RESULTS, Found, way_of

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
    if not path.is_file():
        raise UserError(f"{path} is missing: name the {RESULTS} of a study of documents.")
    try:
        found = read_json(path)
    except UserError:
        raise UserError(f"{path} is damaged: make it anew, copy it again, or leave it out.") from None
    if not isinstance(found, dict) or not {*OWN, "corpus", "documents"} <= found.keys():
        raise UserError(f"{path} does not hold the results of a study of documents: name the {RESULTS} of one.")
    return found


def merged(own: Found, others: Sequence[tuple[Path, Found]]) -> Found:
    """Returns results with the models and seeds that others have beside them; the differences between models are left
    to be made.

    Raises:
        UserError: results are of another study, or have a model with a seed that is there already.
    """
    found = {**own, **{name: [*own[name]] for name in ("commands", "machines", "trainings", "rows")}}
    found["arms"] = {**own["arms"]}
    for path, other in others:
        check_same(path, found, other)
        found["costs"] = _merged_costs(path, found["costs"], other["costs"])
        for name in ("commands", "machines"):
            found[name] += [value for value in other[name] if value not in found[name]]
        known = {_model_of(row) for row in found["trainings"]}  # starts, if any
        found["trainings"] += [row for row in other["trainings"] if _model_of(row) not in known]
        found["rows"] += other["rows"]
        found["arms"] |= other["arms"]
    return {**found, "arms": {name: found["arms"][name] for name in ARMS if name in found["arms"]}}


def _merged_costs(path: Path, own: Found | None, other: Found | None) -> Found | None:
    """Returns the costs of both; of what both measured, those of the first."""
    if not own or not other:
        return own or other
    for name in sorted(own["asked"].keys() | other["asked"].keys()):
        if own["asked"].get(name) != other["asked"].get(name):
            raise UserError(
                f"{path} has costs that were measured in another way, {name.replace('_', ' ')} "
                f"{other['asked'].get(name)!r} and not {own['asked'].get(name)!r}: leave it out."
            )
    measured = {_cost_of(row) for row in own["rows"]}
    rows = [*own["rows"], *(row for row in other["rows"] if _cost_of(row) not in measured)]
    machines = [*own["machines"], *(name for name in other["machines"] if name not in own["machines"])]
    return {**own, "machines": machines, "rows": rows}


def _cost_of(row: Found) -> tuple[str, int, str]:
    return row["part"], row["length"], row["arm"]


def check_same(path: Path, found: Found, other: Found) -> None:
    """Looks whether the results of a file are of the same study as `found`, which may not have all of its own yet.

    Raises:
        UserError: they are not, or have a model with a seed that is there already.
    """
    ours, theirs = _common(found), _common(other)
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            raise UserError(
                f"{path} is of another study, its {name.replace('_', ' ')} {theirs.get(name)!r} and not "
                f"{ours.get(name)!r}: leave it out."
            )
    references = {way_of(row): _reference_lengths(row) for row in found["rows"]}
    models = {_model_of(row) for row in found["trainings"] if row["arm"] != START.name}  # each machine has its starts
    for row in other["rows"]:
        if references.get(way_of(row), _reference_lengths(row)) != _reference_lengths(row):
            raise UserError(f"{path} is of other documents: prepare both studies with the same text and settings.")
    for training in other["trainings"]:
        if _model_of(training) in models:
            raise UserError(
                f"{path} has {training['arm']} with seed {training['seed']}, which is there already: leave one out."
            )


def _common(found: Found) -> Found:
    """Returns what is the same in all results of a study."""
    return {name: found[name] for name in found.keys() - {*OWN, SETTINGS}} | found.get(SETTINGS, {})


def _reference_lengths(row: Found) -> list[Any]:
    return [counts[REFERENCE_LENGTH] for counts in row["counts"]]


def _model_of(row: Found) -> tuple[str, int]:
    return row["arm"], row["seed"]
