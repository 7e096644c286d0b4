"""results.json, which grows with the measurement, so that an interrupted one goes on where it was."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.progress import say

from ..timing import Spread

Row = TypeVar("Row")


class Store:
    """Blocks of rows under their names.

    Args:
        asked: all that they depend on; blocks that were measured for anything else are forgotten.
    """

    def __init__(self, path: Path, asked: dict[str, Any]) -> None:
        self._path, self._asked = path, asked
        before = read_json(path) if path.exists() else {}
        self._blocks: dict[str, Any] = before.get("blocks", {}) if before.get("asked") == asked else {}

    def rows(self, name: str, kind: type[Row], measure: Callable[[], list[Row]]) -> list[Row]:
        """Rows that were measured under a name before, or now."""
        if name in self._blocks:
            say(f"{name}: measured before")
        else:
            self._blocks[name] = [row.facts() for row in measure()]
            self.write()
        return [_restored(kind, facts) for facts in self._blocks[name]]

    def write(self, **more: Any) -> None:
        """Writes all blocks, and what else there is to say of them."""
        write_json(self._path, {"asked": self._asked, **more, "blocks": self._blocks})


def _restored(kind: type[Row], facts: dict[str, Any]) -> Row:
    """The row that gave these facts; what it derives from its fields is left out."""
    given = {field.name: facts[field.name] for field in dataclasses.fields(kind)}
    if given.get("time"):
        given["time"] = Spread(*(given["time"][f"{name}_seconds"] for name in Spread._fields))
    return kind(**given)
