"""The sizes that an attention module is built with."""

from typing import NamedTuple


class Sizes(NamedTuple):
    """Sizes of self-attention over sentences that are all equally long."""

    dim: int
    """C, the model width."""
    heads: int
    length: int
    """n, tokens of a sentence; a module that has positions has this many."""
    k: int
    """Slots, for a module that has them."""
