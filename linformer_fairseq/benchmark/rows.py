"""Rows of measurements: dataclasses in memory, dictionaries in results.json."""

import dataclasses
from typing import Any, TypeVar

from .timing import Spread

SPREADS = ("time", "step")
"""The fields of rows that hold a `Spread` of seconds."""
RowT = TypeVar("RowT", bound="Row")


class Row:
    """What was measured of one contender at one size; the base of dataclasses."""

    def facts(self) -> dict[str, Any]:
        """The fields as results.json has them; subclasses add what they derive."""
        facts = dataclasses.asdict(self)
        return facts | {name: facts[name] and facts[name].facts() for name in SPREADS if name in facts}


def fields_of(kind: type, facts: dict[str, Any]) -> dict[str, Any]:
    """Returns the facts that a dataclass has fields for."""
    return {field.name: facts[field.name] for field in dataclasses.fields(kind) if field.name in facts}


def restore(kind: type[RowT], facts: dict[str, Any]) -> RowT:
    """Returns the row whose `facts()` these are."""
    given = fields_of(kind, facts)
    for name in SPREADS:
        if given.get(name):
            given[name] = Spread(*(given[name][f"{part}_seconds"] for part in Spread._fields))
    return kind(**given)
