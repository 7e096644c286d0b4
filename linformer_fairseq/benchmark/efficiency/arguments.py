"""The command line of the benchmark of efficiency."""

import argparse
from typing import Any

from linformer_fairseq.cli.arguments import ascending, count, number

from .run import run
from .settings import PARTS, EfficiencySettings

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
seconds = number(float, 0.0, 1e6, "a number of seconds")


class _Smoke(argparse.Action):
    """Takes tiny sizes; those that come after it on the command line still count."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        for name, value in SMOKE.items():
            setattr(namespace, name, value)


def parts(text: str) -> tuple[str, ...]:
    """Returns the parts of a comma list, in the order of the report."""
    asked = [part.strip() for part in text.split(",")]
    for part in asked:
        if part not in PARTS:
            raise argparse.ArgumentTypeError(f"{part!r} is not one of {', '.join(PARTS)}")
    return tuple(part for part in PARTS if part in asked)


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """Adds the subcommand `efficiency`."""
    parser = commands.add_parser(
        "efficiency",
        help="attention modules against length, with peers, and whole models",
        description="Time and memory of attention modules against length, Linformer beside full attention and the "
        "attention of other packages (pip install 'linformer_fairseq[peers]'); parameters, inference and training of "
        "whole models. An interrupted run goes on where it was. What does not fit into the free memory is left out.",
    )
    parser.set_defaults(run=run, settings=EfficiencySettings)

    def option(*names: str, **keywords: Any) -> None:
        group.add_argument(*names, **keywords)

    group = parser.add_argument_group("what to measure")
    option("--smoke", action=_Smoke, nargs=0, default=argparse.SUPPRESS, help="tiny sizes, to see that all of it works")
    option("--parts", type=parts, default=",".join(PARTS), metavar="PART[,PART]", help=f"any of {', '.join(PARTS)}")
    option("--report-only", action="store_true", help="write the report again from what --out has, measure nothing")

    group = parser.add_argument_group("sizes")
    option("--dim", type=count, default=512, help="model width")
    option("--heads", type=count, default=8, help="attention heads")

    group = parser.add_argument_group("attention modules")
    option("--k", type=ascending, default="128,256,512,1024,2048", metavar="K[,K]", help="slots")
    lengths = "512,1024,2048,4096,8192,16384,32768,65536"
    option("--lengths", type=ascending, default=lengths, metavar="N[,N]", help="tokens of a sentence")
    option("--tokens", type=count, default=4096, help="tokens of a batch; a longer sentence is one of its own")
    option("--time-limit", type=seconds, default="60", help="seconds of a run, beyond which it is left out")
    option("--slow", type=seconds, default="2", help="seconds of a run, beyond which there are only three")
    option("--equal-lengths", type=ascending, default="32,128,256", metavar="N[,N]", help="lengths n at which k = n")
    option("--equal-tokens", type=count, default=2048, help="tokens of a batch at these")

    group = parser.add_argument_group("whole models")
    option("--layers", type=count, default=6, help="layers of the encoder and of the decoder")
    option("--ffn-dim", type=count, default=2048, help="width of the feed-forward layers")
    option("--words", type=count, default=32000, help="words of the vocabulary")
    option("--model-k", type=ascending, default="32,64", metavar="K[,K]", help="slots")
    option("--positions", type=ascending, default=lengths, metavar="N[,N]", help="longest sentences, for model sizes")
    option("--inference-tokens", type=count, default=16384, help="source tokens of a batch")
    lengths = "256,512,1024,2048,4096,8192,16384"
    option("--inference-lengths", type=ascending, default=lengths, metavar="N[,N]", help="tokens of a sentence")
    option("--max-tokens", type=count, default=4096, help="tokens of a training batch")
    option("--batches", type=count, default=4, help="training batches of WMT-like lengths")
    option("--training-lengths", type=ascending, default="1024,4096", metavar="N[,N]", help="tokens of a sentence")
    option("--whole-repeats", type=count, default=5, help="runs that count, after one that does not")
    option("--whole-time-limit", type=seconds, default="300", help="as --time-limit, of a whole model's run")
    return parser
