"""What a command tells while it works."""

import sys

from tqdm import tqdm

LIVE_SECONDS, LOG_SECONDS = 0.1, 30.0  # between two states of a bar, on a terminal and in a log
HIDDEN_SECONDS = 1.0  # what ends sooner needs no bar


def say(message: str) -> None:
    """One line of progress, in one piece: threads that work side by side both talk."""
    sys.stdout.write(message + "\n")
    sys.stdout.flush()


def byte_bar(what: str, total: int | None, start: int = 0) -> tqdm:
    """A bar of bytes with their rate and the time left, on standard error; live only on a terminal.

    Args:
        total: bytes in all, None where nobody knows.
        start: bytes that are done already.
    """
    pace = LIVE_SECONDS if sys.stderr.isatty() else LOG_SECONDS
    return tqdm(
        desc=what,
        total=total,
        initial=start,
        unit="B",
        unit_scale=True,
        mininterval=pace,
        maxinterval=LOG_SECONDS,
        delay=HIDDEN_SECONDS,
    )
