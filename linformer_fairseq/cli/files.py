"""Files that are whole or not there."""

import json
import os
from pathlib import Path
from typing import Any

from .errors import UserError


def write_text(path: Path, text: str) -> None:
    """Replace a file's text in one move, so that nobody ever reads half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a file that `write_json` wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{path} is damaged: remove it, or use another --out.") from None
