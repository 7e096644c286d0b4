"""Files that are written whole or not at all, and where none can be."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from linformer_fairseq.cli.errors import UserError


def check_output(path: Path, flag: str = "") -> None:
    """Refuses, before long work, a path at which no file can be written; a refusal names the flag that gave it.

    Raises:
        UserError: it is a folder, or its folder does not exist.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise UserError(f"{path} cannot be written: name a file in a folder that exists{flag and f' with {flag}'}.")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, renamed to `path` at the end, so that nobody reads half a file."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
