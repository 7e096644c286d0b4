"""results.json, which grows with the measurement, so that an interrupted one goes on where it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.cli.progress import say

from ..rows import Row, restore

RowT = TypeVar("RowT", bound=Row)
FILE_NAME = "results.json"


class Store:
    """Blocks of rows under their names.

    Args:
        asked: all that the rows depend on; blocks that were measured for anything else are forgotten.
    """

    def __init__(self, path: Path, asked: dict[str, Any]) -> None:
        self._path, self._asked = path, asked
        before = read_json(path) if path.exists() else {}
        self._blocks: dict[str, Any] = before.get("blocks", {}) if before.get("asked") == asked else {}

    def rows(self, name: str, kind: type[RowT], measure: Callable[[], list[RowT]]) -> list[RowT]:
        """Returns the rows that were measured under a name before, or measures them now."""
        if name in self._blocks:
            say(f"{name}: measured before")
        else:
            self._blocks[name] = [row.facts() for row in measure()]
            self.write()
        return [restore(kind, facts) for facts in self._blocks[name]]

    def write(self, **more: Any) -> None:
        """Writes all blocks, and what else there is to say about them."""
        write_json(self._path, {"asked": self._asked, **more, "blocks": self._blocks})
