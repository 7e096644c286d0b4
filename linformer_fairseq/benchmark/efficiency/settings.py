"""The sizes that the benchmark of efficiency takes."""

from dataclasses import dataclass

from ..models import ModelSizes
from .whole_settings import InferenceSettings, ModelSizeSettings, TrainingSettings

MODULES = "modules"
EQUAL = "equal"
SIZES = "sizes"
INFERENCE = "inference"
TRAINING = "training"
PREFERRED_K = 256
PARTS = (MODULES, EQUAL, SIZES, INFERENCE, TRAINING)


@dataclass(frozen=True)
class EfficiencySettings:
    """The options under their names on the command line; lists are ascending."""

    parts: tuple[str, ...]
    dim: int
    heads: int
    k: tuple[int, ...]
    lengths: tuple[int, ...]
    tokens: int
    """Of a batch, at least: a longer sentence is a batch of its own."""
    equal_lengths: tuple[int, ...]
    """Lengths n at which k = n."""
    equal_tokens: int
    time_limit: float
    """Seconds of a module's run, beyond which it is left out."""
    slow: float
    """Seconds of a module's run, beyond which three of them must do."""
    layers: int
    ffn_dim: int
    words: int
    model_k: tuple[int, ...]
    positions: tuple[int, ...]
    inference_tokens: int
    inference_lengths: tuple[int, ...]
    max_tokens: int
    batches: int
    training_lengths: tuple[int, ...]
    whole_repeats: int
    """Runs of whole models that count; one before them does not."""
    whole_time_limit: float
    """Seconds of a whole model's run, beyond which it is left out."""

    @property
    def table_k(self) -> int:
        """The k with which others that have none stand beside Linformers."""
        return PREFERRED_K if PREFERRED_K in self.k else self.k[-1]

    @property
    def model(self) -> ModelSizes:
        return ModelSizes(self.dim, self.heads, self.layers, self.ffn_dim, self.words)

    @property
    def model_size(self) -> ModelSizeSettings:
        return ModelSizeSettings(self.model, self.positions, self.model_k, sharing_k=self.model_k[-1])

    @property
    def inference(self) -> InferenceSettings:
        return InferenceSettings(
            self.model,
            self.model_k,
            self.model_k[-1],
            self.inference_tokens,
            self.inference_lengths,
            time_limit=self.whole_time_limit,
        )

    @property
    def training(self) -> TrainingSettings:
        return TrainingSettings(
            self.model,
            self.model_k,
            max_tokens=self.max_tokens,
            batches=self.batches,
            lengths=self.training_lengths,
            time_limit=self.whole_time_limit,
        )
