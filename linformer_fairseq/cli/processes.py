"""Processes that must not outlive what started them."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent(parent: int | None = None) -> None:
    """Asks Linux to kill this process once the thread that started it is gone: a killed command must not leave a
    training behind that a second one would fight with.

    A process asks for itself, its children do not inherit it; as `preexec_fn` it holds for the started command.

    Args:
        parent: the process that started this one, where it knows: if that is gone already, this one ends here.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
