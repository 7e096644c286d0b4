"""What fairseq still asks of numpy 1."""

from types import SimpleNamespace

import numpy


def restore_numpy_compat() -> None:
    """Gives numpy 2 back `numpy.compat.long`, Python's int, without which `--sample-break-mode eos`, and so every
    `fairseq-interactive` with a language model, and `--num-batch-buckets` fail."""
    if not hasattr(numpy, "compat"):
        numpy.compat = SimpleNamespace(long=int)
