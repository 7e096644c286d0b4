"""The sizes at which whole models are measured; lists are ascending."""

from dataclasses import dataclass, field

from ..forward import ENCODER, WITHOUT_WEIGHTS
from ..models import ModelSizes


@dataclass(frozen=True)
class ModelSizeSettings:
    """What models to count the parameters of."""

    model: ModelSizes = field(default_factory=ModelSizes)
    positions: tuple[int, ...] = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
    """N, the longest source and the longest target."""
    ks: tuple[int, ...] = (32, 64, 128, 256)
    sharing_k: int = 64
    """One of them, with which every sharing is counted, and a projection without parameters."""


@dataclass(frozen=True)
class InferenceSettings:
    """What forward passes to time."""

    model: ModelSizes = field(default_factory=ModelSizes)
    ks: tuple[int, ...] = (32, 64)
    all_linear_k: int | None = 64
    """The k of a Linformer that projects the decoder's self-attention too; None for no such model."""
    tokens: int = 16384
    """Of the sources of a batch; the targets have as many."""
    lengths: tuple[int, ...] = (256, 512, 1024, 2048, 4096, 8192, 16384)
    """Tokens of a sentence; those beyond `tokens` are left out. The models have positions for the longest."""
    parts: tuple[str, ...] = (ENCODER, WITHOUT_WEIGHTS)
    """Any of those in `benchmark.forward`."""
    time_limit: float = 300.0
    """Seconds of one run, beyond which it is left out."""

    @property
    def longest(self) -> int:
        return max(length for length in self.lengths if length <= self.tokens)


@dataclass(frozen=True)
class TrainingSettings:
    """What training to time."""

    model: ModelSizes = field(default_factory=ModelSizes)
    ks: tuple[int, ...] = (32, 64)
    all_linear_k: int | None = None
    """As for inference."""
    positions: int = 1024
    """N, or the longest sentence where that is longer."""
    max_tokens: int = 4096
    """Of a batch, as fairseq-train counts them: its longest sentence, source or target, times its sentences."""
    batches: int = 8
    """Of WMT-like lengths, spread evenly over those of an epoch; a run is one pass over them."""
    sentences: int = 20_000
    """Of the corpus that these are taken from."""
    mean_words: float = 29.0
    longest_words: int = 250
    lengths: tuple[int, ...] = (1024, 4096)
    """Tokens of a sentence where all are equally long, `max_tokens` at most; a run is one batch of them."""
    time_limit: float = 300.0
    """Seconds of one run, beyond which it is left out."""
