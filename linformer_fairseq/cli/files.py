"""Files that are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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


def write_text(path: Path, text: str) -> None:
    """Writes a text file in one move."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")
