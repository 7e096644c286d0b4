"""Cases of tests of which only some run by default, or only with a newer torch."""

from collections.abc import Collection, Iterable

import pytest
import torch

NEWER_TORCH = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 4)
reads_checkpoints = pytest.mark.skipif(
    not hasattr(torch.serialization, "add_safe_globals"), reason="reading checkpoints needs torch 2.4"
)
"""Marks what converts, averages or otherwise reads checkpoints by this package, which older torch cannot do safely."""


def variants(every: Iterable, default: Collection) -> list:
    """Returns all cases for `parametrize`, of which only the default ones run without `scripts/test.sh --all`."""
    others = [case for case in every if case not in default]
    return [*default, *(pytest.param(*_values(case), marks=pytest.mark.exhaustive) for case in others)]


def _values(case: object) -> tuple:
    return case if isinstance(case, tuple) else (case,)
