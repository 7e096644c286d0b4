"""Shows the progress of a command, as lines and bars."""

import sys

from tqdm import tqdm

LIVE_SECONDS = 0.5
LOG_SECONDS = 30.0  # between two states of a bar in a log
SHORT_SECONDS = 2.0  # work that takes less shows no bar


def say(message: str) -> None:
    """Prints one line at once."""
    print(message, flush=True)


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
