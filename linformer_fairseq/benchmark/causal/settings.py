"""The sizes that the benchmark of causal attention takes."""

from dataclasses import dataclass

from linformer_fairseq.cli.arguments import ascending, count

from ..models import ModelSizes
from ..options import option


@dataclass(frozen=True)
class CausalSettings:
    """The options under their names on the command line; lists are ascending."""

    k: int = option(64, "slots of every projection", "sizes", type=count)
    dim: int = option(512, "model width", type=count)
    heads: int = option(8, "attention heads", type=count)

    layers: int = option(6, "layers of the encoder and of the decoder", "decoding", type=count)
    ffn_dim: int = option(2048, "width of the feed-forward layers", type=count)
    words: int = option(8000, "words of the vocabulary", type=count)
    sentences: int = option(8, "sentences of a batch", type=count)
    source_length: int = option(30, "tokens of a source sentence", type=count)
    beams: tuple[int, ...] = option("1,4", "beam widths", type=ascending, metavar="N[,N]")
    positions: tuple[int, ...] = option(
        "64,256,1024,4096", "target tokens after a step", type=ascending, metavar="N[,N]"
    )

    batch: int = option(1, "sentences of a batch", "training", type=count)
    lengths: tuple[int, ...] = option("512,2048,8192", "tokens of a sentence", type=ascending, metavar="T[,T]")
    eager_limit: int = option(2048, "longest T for fairseq's attention, which makes a T x T", type=count)
    chunk_sizes: tuple[int, ...] = option("32,64,128,256", "chunk sizes to try", type=ascending, metavar="C[,C]")

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def model(self) -> ModelSizes:
        return ModelSizes(self.dim, self.heads, self.layers, self.ffn_dim, self.words)
