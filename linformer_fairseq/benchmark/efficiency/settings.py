"""The sizes that the benchmark of efficiency takes."""

import argparse
from dataclasses import asdict, dataclass
from typing import Any

from linformer_fairseq.cli.arguments import ascending, count, number

from ..models import ModelSizes
from ..options import option

MODULES = "modules"
EQUAL = "equal"
CROSS = "cross"
CAUSAL = "causal"
SIZES = "sizes"
INFERENCE = "inference"
TRAINING = "training"
PARTS = (MODULES, CROSS, CAUSAL, EQUAL, SIZES, INFERENCE, TRAINING)
PREFERRED_K = 256
LENGTHS = "512,1024,2048,4096,8192,16384,32768,65536"
SMOKE = {
    "dim": 32,
    "heads": 4,
    "k": (8, 16),
    "lengths": (256, 512),
    "tokens": 512,
    "equal_lengths": (8,),
    "equal_tokens": 16,
    "layers": 1,
    "ffn_dim": 16,
    "words": 20,
    "model_k": (4, 8),
    "positions": (16, 32),
    "inference_tokens": 32,
    "inference_lengths": (16, 32),
    "max_tokens": 512,
    "batches": 2,
    "training_lengths": (64,),
    "repeats": 2,
    "warm_up": 1,
    "whole_repeats": 2,
}
"""What --smoke sets, among it options that every benchmark has."""
seconds = number(float, 0.0, 1e6, "a number of seconds")


def _parts(text: str) -> tuple[str, ...]:
    """Converts a comma list of parts, and returns them in the order of the report."""
    asked = [part.strip() for part in text.split(",")]
    for part in asked:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(f"{part!r} is not one of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in asked)


@dataclass(frozen=True)
class EfficiencySettings:
    """The options under their names on the command line; lists are ascending."""

    parts: tuple[str, ...] = option(
        ",".join(PARTS), f"any of {', '.join(PARTS)}", "what to measure", type=_parts, metavar="PART[,PART]"
    )
    report_only: bool = option(
        False, "write the report again from what --out has, measure nothing", action="store_true"
    )

    dim: int = option(512, "model width", "sizes", type=count)
    heads: int = option(8, "attention heads", type=count)

    k: tuple[int, ...] = option("128,256,512,1024,2048", "slots", "attention modules", type=ascending, metavar="K[,K]")
    lengths: tuple[int, ...] = option(LENGTHS, "tokens of a sentence", type=ascending, metavar="N[,N]")
    tokens: int = option(4096, "tokens of a batch; a longer sentence is one of its own", type=count)
    time_limit: float = option("60", "seconds of a run, beyond which it is left out", type=seconds)
    slow: float = option("2", "seconds of a run, beyond which there are only three", type=seconds)
    equal_lengths: tuple[int, ...] = option("32,128,256", "lengths n at which k = n", type=ascending, metavar="N[,N]")
    equal_tokens: int = option(2048, "tokens of a batch at these", type=count)

    layers: int = option(6, "layers of the encoder and of the decoder", "whole models", type=count)
    ffn_dim: int = option(2048, "width of the feed-forward layers", type=count)
    words: int = option(32000, "words of the vocabulary", type=count)
    model_k: tuple[int, ...] = option("32,64", "slots", type=ascending, metavar="K[,K]")
    positions: tuple[int, ...] = option(LENGTHS, "longest sentences, for model sizes", type=ascending, metavar="N[,N]")
    inference_tokens: int = option(16384, "source tokens of a batch", type=count)
    inference_lengths: tuple[int, ...] = option(
        "256,512,1024,2048,4096,8192,16384", "tokens of a sentence", type=ascending, metavar="N[,N]"
    )
    max_tokens: int = option(4096, "tokens of a training batch", type=count)
    batches: int = option(4, "training batches of WMT-like lengths", type=count)
    training_lengths: tuple[int, ...] = option("1024,4096", "tokens of a sentence", type=ascending, metavar="N[,N]")
    whole_repeats: int = option(5, "runs that count, after one that does not", type=count)
    whole_time_limit: float = option("300", "as --time-limit, of a whole model's pass or training step", type=seconds)

    @property
    def table_k(self) -> int:
        """The k of the rows that tables compare with modules that have no k."""
        return PREFERRED_K if PREFERRED_K in self.k else self.k[-1]

    @property
    def largest_model_k(self) -> int:
        """The k of the variants: other sharings, no parameters, the decoder projected too."""
        return self.model_k[-1]

    @property
    def model(self) -> ModelSizes:
        return ModelSizes(self.dim, self.heads, self.layers, self.ffn_dim, self.words)

    def sizes(self) -> dict[str, Any]:
        """Returns all that measured numbers depend on, as results.json has it."""
        chosen = {name: value for name, value in asdict(self).items() if name not in ("parts", "report_only")}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()}
