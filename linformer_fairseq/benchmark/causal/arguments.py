"""The command line of the benchmark of causal attention."""

import argparse
from typing import Any

from linformer_fairseq.cli.arguments import ascending, count

from .run import run
from .settings import CausalSettings


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Adds the subcommand `causal`."""
    parser = commands.add_parser(
        "causal",
        help="the decoder's self-attention, in decoding and in training",
        description="Causal Linformer attention against full attention: a step of beam search with whole models, and "
        "forward and backward of the attention alone.",
    )
    parser.set_defaults(run=run, settings=CausalSettings)

    def option(*names: str, **keywords: Any) -> None:
        group.add_argument(*names, **keywords)

    group = parser.add_argument_group("sizes")
    option("--k", type=count, default=64, help="slots of every projection")
    option("--dim", type=count, default=512, help="model width")
    option("--heads", type=count, default=8, help="attention heads")

    group = parser.add_argument_group("decoding")
    option("--layers", type=count, default=6, help="layers of the encoder and of the decoder")
    option("--ffn-dim", type=count, default=2048, help="width of the feed-forward layers")
    option("--words", type=count, default=8000, help="words of the vocabulary")
    option("--sentences", type=count, default=8, help="sentences of a batch")
    option("--source-length", type=count, default=30, help="tokens of a source sentence")
    option("--beams", type=ascending, default="1,4", metavar="N[,N]", help="beam widths")
    option("--positions", type=ascending, default="64,256,1024,4096", metavar="N[,N]", help="target tokens so far")

    group = parser.add_argument_group("training")
    option("--batch", type=count, default=1, help="sentences of a batch")
    option("--lengths", type=ascending, default="512,2048,8192", metavar="T[,T]", help="tokens of a sentence")
    option("--eager-limit", type=count, default=2048, help="longest T for fairseq's attention, which makes a T x T")
    option("--chunk-sizes", type=ascending, default="32,64,128,256", metavar="C[,C]", help="chunk sizes to try")
    return parser
