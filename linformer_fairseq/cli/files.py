"""Files that are whole or not there, and what tells whether one has changed."""

import errno
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .errors import DiskFullError, UserError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to; it then takes the place of `path` in one move, so that nobody reads half."""
    part = path.with_name(path.name + ".part")
    try:
        yield part
        os.replace(part, path)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise


def is_full(error: Exception) -> bool:
    """Whether an error says that there is no space left."""
    return isinstance(error, DiskFullError) or (
        isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    )


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What goes wrong with the disk while `path` is written, said in one sentence.

    Raises:
        DiskFullError: no space is left.
        UserError: a folder without the right to write.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:  # not the system's: gzip's own
            raise
        if is_full(error):
            raise DiskFullError(
                f"There is no space left for {path}: free some space and run the same command again: "
                "it goes on from there."
            ) from None
        raise UserError(f"{path} cannot be written: {error.strerror}.") from None


def write_text(path: Path, text: str) -> None:
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a file that `write_json` wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise UserError(f"{path} is damaged: remove it, or use another --out.") from None


def sha256_of(path: Path) -> str:
    """The digest of a file's bytes, read piece by piece.

    Raises:
        UserError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return digest.hexdigest()
