"""The sizes that the benchmark of efficiency takes."""

from dataclasses import asdict, dataclass
from typing import Any

from ..models import ModelSizes

MODULES = "modules"
EQUAL = "equal"
SIZES = "sizes"
INFERENCE = "inference"
TRAINING = "training"
PARTS = (MODULES, EQUAL, SIZES, INFERENCE, TRAINING)
PREFERRED_K = 256


@dataclass(frozen=True)
class EfficiencySettings:
    """The options under their names on the command line; lists are ascending."""

    parts: tuple[str, ...]
    report_only: bool
    dim: int
    heads: int
    k: tuple[int, ...]
    lengths: tuple[int, ...]
    tokens: int
    """Tokens of a batch; a longer sentence is a batch of its own."""
    equal_lengths: tuple[int, ...]
    """Lengths n at which k = n."""
    equal_tokens: int
    time_limit: float
    """Seconds of a module's run, beyond which it is left out."""
    slow: float
    """Seconds of a module's run, beyond which it runs three times only."""
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
        """The k at which Linformers stand beside modules that have none."""
        return PREFERRED_K if PREFERRED_K in self.k else self.k[-1]

    @property
    def largest_model_k(self) -> int:
        """The k of the models that project or share in other ways than the usual one."""
        return self.model_k[-1]

    @property
    def model(self) -> ModelSizes:
        return ModelSizes(self.dim, self.heads, self.layers, self.ffn_dim, self.words)

    def sizes(self) -> dict[str, Any]:
        """Returns all that measured numbers depend on, as results.json has it."""
        chosen = {name: value for name, value in asdict(self).items() if name not in ("parts", "report_only")}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()}
