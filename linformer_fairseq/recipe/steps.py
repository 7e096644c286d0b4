"""Steps that are done once: a step's result appears under its name only when it is whole."""

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import RecipeError

LOCK_PATIENCE_SECONDS = 30.0


def say(message: str) -> None:
    """One line of progress, in one piece: trainings that run side by side both talk."""
    sys.stdout.write(message + "\n")
    sys.stdout.flush()


def build_folder(target: Path, what: str, build: Callable[[Path], None]) -> None:
    """Let `build` fill a folder beside `target` and rename it; a `target` that exists is kept as it is."""
    if target.is_dir():
        say(f"{what}: done before")
        return
    say(f"{what} ...")
    part = target.with_name(target.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    build(part)
    part.rename(target)


def write_text(path: Path, text: str) -> None:
    """Replace a file's text in one move, so that nobody ever reads half of it."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def read_json(path: Path) -> Any:
    """The value in a file that this recipe wrote."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise RecipeError(f"{path} is damaged: remove it, or use another --out.") from None


@contextmanager
def locked(folder: Path, patience: float = LOCK_PATIENCE_SECONDS) -> Iterator[int]:
    """Keep other runs out of `folder`; yields the descriptor that child processes hold as well.

    A killed run's last child may need a moment to end, hence the patience.
    """
    with open(folder / ".lock", "w") as lock:
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RecipeError(
                        f"Another run is working in {folder}: wait for it, or use another --out."
                    ) from None
                time.sleep(0.2)
        yield lock.fileno()
