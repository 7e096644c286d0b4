"""What is faster than something else on which device, and from which sizes on."""

from typing import NamedTuple

import torch


class Thresholds(NamedTuple):
    """What is known about one type of device."""

    folding: int
    """How often the multiplications count that fold linear layers into slots."""
    number_moved: int
    """The multiplications that take as long as writing or reading one number of an intermediate result."""
    longest_single_chunk: int
    """Tokens of a text whose causal attention is fastest, if not with least memory, in a single chunk."""
    chunk_size: int
    """Tokens of a chunk, at most, with which longer texts are fastest."""
    portions: int
    """In how many portions causal two-level attention is computed: each has the columns that its last block needs."""
    scored: int | None
    """How many scores of windows blocks make at a time when they choose, about; None for all."""
    gathered: int | None
    """How many numbers of keys a step of causal two-level attention gathers at a time, about; None for all."""
    shares_rows: bool
    """Whether a search looks at which hypotheses descend from the same one, so that they share what they read; to look
    is to wait for the device."""


CPU = Thresholds(
    folding=2,
    number_moved=0,
    longest_single_chunk=192,
    chunk_size=64,
    portions=4,
    scored=1 << 20,
    gathered=1 << 20,
    shares_rows=True,
)
"""As timed. Folding counts twice for the matrices that it makes, which are written, reordered and read again; what else
is moved stays in the processor's caches."""

# Derived from counted operations and bytes, and not measured. An H100 multiplies and adds 33.5 · 10¹² times a second in
# float32, and moves 0.84 · 10¹² float32 numbers to or from its memory; an A100 9.7 and 0.5 · 10¹²: 20 to 40
# multiplications a number. A chunk of c tokens then costs, for each of them and in each head, 2 c (d + k) + 4 d k
# multiplications for its block and its sums, and 4 c + 8 d k / c numbers moved for them. With d = 64 and k = 128 that
# is least at about 64 tokens; and a text in one piece, 2 c (d + k) and 4 c, costs less up to 192. Portions save columns
# of means, some tenth of all at 4,096 tokens, and cost twenty operations each, which a GPU waits for.
GPU = Thresholds(
    folding=1,
    number_moved=32,
    longest_single_chunk=192,
    chunk_size=64,
    portions=1,
    scored=None,
    gathered=None,
    shares_rows=False,
)

_BY_TYPE = {"cpu": CPU}


def thresholds(device: torch.device) -> Thresholds:
    """What holds for a device; every accelerator counts as a GPU."""
    return _BY_TYPE.get(device.type, GPU)
