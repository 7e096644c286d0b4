"""Files that are written whole or not at all, and their digests."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yields a temporary path beside `path`, renamed to `path` at the end, so that nobody reads half a file."""
    part = part_of(path)
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def part_of(path: Path) -> Path:
    """Returns where a file is until it is whole."""
    return path.with_name(path.name + ".part")


def is_full(error: Exception) -> bool:
    """Returns whether an error says that no space is left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_text(path: Path, text: str) -> None:
    """Writes a text file in one move."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Writes a value as indented JSON in one move."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """Returns the value in a file that `write_json` wrote.

    Raises:
        UserError: the file is damaged.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{path} is damaged: remove it, or use another --out.") from None


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 digest of a file, which may be larger than memory.

    Raises:
        UserError: the file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest()
