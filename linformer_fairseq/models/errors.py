"""How the plugin says what is wrong with what a user asked for."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_sentence() -> Iterator[None]:
    """Ends the running command with the sentence of a ValueError and exit status 1, without a traceback.

    fairseq's commands print whatever a plugin raises as a traceback, and its trainer replaces the message of an
    exception by one of its own; SystemExit passes through both.
    """
    try:
        yield
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None
