"""Rows of measurements: dataclasses in memory, dictionaries in results.json."""

import dataclasses
from typing import Any, TypeVar

from .options import fields_of
from .timing import Spread

RowT = TypeVar("RowT", bound="Row")


class Row:
    """What was found of one contender at one size; the base of dataclasses."""

    def facts(self) -> dict[str, Any]:
        """Returns the fields as results.json has them; subclasses add what they derive."""
        facts = dataclasses.asdict(self)
        return {name: value.facts() if isinstance(value, Spread) else value for name, value in facts.items()}


class TimedRow(Row):
    """What was measured of one contender at one size; the base of dataclasses that have a time."""

    time: Spread | None
    note: str
    """Why there is no time."""

    @property
    def seconds(self) -> float | None:
        """The median time."""
        return self.time.median if self.time else None


def restore(kind: type[RowT], facts: dict[str, Any]) -> RowT:
    """Returns the row whose `facts()` these are."""
    given = fields_of(kind, facts)
    if given.get("time"):
        given["time"] = Spread(*(given["time"][f"{part}_seconds"] for part in Spread._fields))
    return kind(**given)
