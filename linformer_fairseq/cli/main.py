"""Ends commands."""

import logging
import sys
import warnings
from collections.abc import Callable

from .errors import UserError


def exit_status(command: Callable[[], None], interrupted: str) -> int:
    """Runs a command and returns its exit status, having said in one sentence what went wrong.

    The status is 0 after success, 1 after a failed write, 2 after an error that the user can put right and 130 after
    an interruption.

    Args:
        interrupted: what an interruption means, for the user.
    """
    logging.getLogger().setLevel(logging.WARNING)  # fairseq has set it to INFO
    warnings.filterwarnings("ignore", r"`torch\.cuda\.amp\.autocast", FutureWarning)  # a name that fairseq uses
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
