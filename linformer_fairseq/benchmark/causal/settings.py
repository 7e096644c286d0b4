"""The sizes that the benchmark of causal attention takes."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CausalSettings:
    """The options under their names on the command line; lists are ascending."""

    k: int
    dim: int
    heads: int
    layers: int
    ffn_dim: int
    words: int
    sentences: int
    source_length: int
    beams: tuple[int, ...]
    positions: tuple[int, ...]
    batch: int
    lengths: tuple[int, ...]
    eager_limit: int
    chunk_sizes: tuple[int, ...]

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads
