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
        command: the command line, for the report.
    """

    def __init__(self, path: Path, asked: dict[str, Any], command: str) -> None:
        self._path, self._asked, self._command = path, asked, command
        before = read_json(path) if path.exists() else {}
        self._blocks: dict[str, Any] = before.get("blocks", {}) if before.get("asked") == asked else {}

    def rows(self, name: str, kind: type[RowT], measure: Callable[[], list[RowT]]) -> list[RowT]:
        """Returns the rows that are stored under a name, or measures and stores them."""
        if name in self._blocks:
            say(f"{name}: already measured")
        else:
            self._blocks[name] = [row.facts() for row in measure()]
            self.write()
        return [restore(kind, facts) for facts in self._blocks[name]]

    def write(self) -> None:
        """Writes all blocks, with what they were measured for."""
        write_json(self._path, {"asked": self._asked, "command": self._command, "blocks": self._blocks})
