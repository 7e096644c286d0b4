"""Putting the results of one study on several machines together."""

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json

RESULTS = "results.json"
"""The file of all that a study has found."""

Found = dict[str, Any]
"""What a results.json holds, or an entry of it."""
Value = TypeVar("Value")


def read_results(path: Path, names: Collection[str], study: str) -> Found:
    """Returns the content of a results.json.

    Args:
        names: the keys that it has.
        study: what it is the results of.

    Raises:
        UserError: there is none at this path, or it is of something else.
    """
    if not path.is_file():
        raise UserError(f"{path} is missing: run the study first, or name the results.json of one.")
    try:
        found = read_json(path)
    except UserError:
        raise UserError(f"{path} is damaged: make it anew, copy it again, or leave it out.") from None
    if not isinstance(found, dict) or not set(names) <= found.keys():
        raise UserError(f"{path} does not hold the results of {study}: name the results.json of one.")
    return found


def check_settings(path: Path, ours: Found, theirs: Found) -> None:
    """Looks whether the results of a file were made with the same settings.

    Raises:
        UserError: naming the first that differs.
    """
    for name in dict.fromkeys([*ours, *theirs]):
        if ours.get(name) != theirs.get(name):
            raise UserError(
                f"{path} is of another study, its {name.replace('_', ' ')} {theirs.get(name)!r} and not "
                f"{ours.get(name)!r}: leave it out."
            )


def check_new(
    path: Path, known: Iterable[Found], rows: Iterable[Found], key: Callable[[Found], Any], name: Callable[[Found], str]
) -> None:
    """Looks whether the trainings of a file are none of those that are there already.

    Args:
        key: tells a training from all others.
        name: says which training it is.

    Raises:
        UserError: naming the first that is.
    """
    keys = {key(row) for row in known}
    for row in rows:
        if key(row) in keys:
            raise UserError(f"{path} has {name(row)}, which is there already: leave one out.")


def joined(
    own: Sequence[Value], others: Sequence[Value], key: Callable[[Value], Any] = lambda value: value
) -> list[Value]:
    """Returns the values of both, those of `others` only where none of `own` has the same key."""
    known = {key(value) for value in own}
    return [*own, *(value for value in others if key(value) not in known)]


def joined_costs(path: Path, own: Found | None, other: Found | None, key: Callable[[Found], Any]) -> Found | None:
    """Returns the costs of both: what was `asked`, the `machines`, and the `rows`, of what both measured the first's.

    Raises:
        UserError: those of the file were measured in another way.
    """
    if not own or not other:
        return own or other
    for name in sorted(own["asked"].keys() | other["asked"].keys()):
        if own["asked"].get(name) != other["asked"].get(name):
            raise UserError(
                f"{path} has costs that were measured in another way, {name.replace('_', ' ')} "
                f"{other['asked'].get(name)!r} and not {own['asked'].get(name)!r}: leave it out."
            )
    machines = joined(own["machines"], other["machines"])
    return {**own, "machines": machines, "rows": joined(own["rows"], other["rows"], key)}
