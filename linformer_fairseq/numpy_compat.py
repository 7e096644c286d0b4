"""The part of numpy 1 that fairseq still uses."""

from types import SimpleNamespace

import numpy


def restore_numpy_compat() -> None:
    """Defines `numpy.compat.long`, Python's int, where numpy 2 has removed it.

    fairseq uses it in `--sample-break-mode eos`, and so in `fairseq-interactive` with a language model.
    """
    if not hasattr(numpy, "compat"):
        numpy.compat = SimpleNamespace(long=int)  # type: ignore[attr-defined]
