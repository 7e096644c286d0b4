"""Shows the progress of a command, as lines and bars."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from tqdm import tqdm

LIVE_SECONDS = 0.5
LOG_SECONDS = 30.0  # between two states of a bar in a log
SHORT_SECONDS = 2.0  # work that takes less shows no bar


def say(message: str) -> None:
    """Prints one line in one write, as several threads may print."""
    sys.stdout.write(message + "\n")
    sys.stdout.flush()


def bar(total: int, what: str, unit: str) -> tqdm:
    """Returns a progress bar that is updated live on a terminal and now and then in a log."""
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
    )


@contextmanager
def growing(folder: Path, pattern: str, total: int, what: str) -> Iterator[None]:
    """Shows how the files of a folder grow to `total` bytes while another process writes them."""
    done = Event()

    def watch() -> None:
        with bar(total, what, "B") as progress:
            finished = False
            while not finished:
                finished = done.wait(LIVE_SECONDS)
                size = 0
                for path in folder.glob(pattern):
                    with suppress(FileNotFoundError):  # just removed or renamed
                        size += path.stat().st_size
                progress.update(min(total, size) - progress.n)

    watcher = Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
