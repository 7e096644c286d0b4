"""What a command tells while it works."""

import sys


def say(message: str) -> None:
    """One line of progress, in one piece: threads that work side by side both talk."""
    sys.stdout.write(message + "\n")
    sys.stdout.flush()
