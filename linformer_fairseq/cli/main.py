"""How a command ends."""

import logging
import sys
from collections.abc import Callable

from .errors import UserError


def quiet_libraries() -> None:
    """Importing fairseq turns on debug messages for everything; libraries imported from here on say only warnings."""
    logging.getLogger().setLevel(logging.WARNING)


def exit_status(command: Callable[[], None], interrupted: str) -> int:
    """Runs a command. 0, 1 for a failed write, 2 for what the user can put right, 130 when interrupted.

    Args:
        interrupted: what an interruption means, for the user.
    """
    try:
        command()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that vanished
        print(f"error: {error.filename or 'the output folder'}: {error.strerror}.", file=sys.stderr)
        return 1
    except MemoryError:
        print("error: The memory is full: give the command more of it, or less to do at a time.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted: {interrupted}", file=sys.stderr)
        return 130
    return 0
