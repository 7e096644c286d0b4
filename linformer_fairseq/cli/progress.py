"""What a command tells while it works."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

from tqdm import tqdm

LIVE_SECONDS = 0.5
LOG_SECONDS = 30.0  # between lines where nobody watches
SHORT_SECONDS = 2.0  # work that takes less shows no bar


def say(message: str) -> None:
    """One line of progress, in one piece: threads that work side by side both talk."""
    sys.stdout.write(message + "\n")
    sys.stdout.flush()


def bar(total: int | None, what: str, unit: str, **options: Any) -> tqdm:
    """How far some work is, and how long it will still take; live on a terminal, now and then in a log.

    Args:
        total: the units in all, None where nobody knows.
        options: further ones of tqdm's, `initial` for what is done already.
    """
    live = sys.stderr.isatty()
    return tqdm(
        total=total,
        desc=f"  {what}",
        unit=unit,
        unit_scale=True,
        dynamic_ncols=live,
        leave=not live,
        mininterval=LIVE_SECONDS if live else LOG_SECONDS,
        delay=SHORT_SECONDS,
        **options,
    )


@contextmanager
def growing(folder: Path, pattern: str, total: int, what: str) -> Iterator[None]:
    """Shows how the files of a folder grow to `total` bytes while somebody else writes them."""
    done = Event()

    def watch() -> None:
        with bar(total, what, "B") as progress:
            finished = False
            while not finished:
                finished = done.wait(LIVE_SECONDS)
                progress.update(min(total, sum(map(_size, folder.glob(pattern)))) - progress.n)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # just removed or renamed
        return 0
