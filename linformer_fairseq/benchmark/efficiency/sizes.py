"""The sizes that an attention module is built with."""

from typing import NamedTuple


class Sizes(NamedTuple):
    """Of self-attention over sentences that are all equally long."""

    dim: int
    """C, the model width."""
    heads: int
    length: int
    """n, tokens of a sentence; a module that has positions is built for this many."""
    k: int
    """Slots, where a module has them."""
