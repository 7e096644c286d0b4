"""The benchmark's command line, a subcommand for each benchmark."""

import argparse
import dataclasses
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from linformer_fairseq.cli.arguments import Parser, count, counts, natural
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.machine import cpu_count

from . import causal
from .causal_settings import CausalSettings
from .running import DTYPES, Running


@dataclass(frozen=True)
class Arguments:
    """What one invocation asks for."""

    run: Callable[[Running, CausalSettings], None]
    running: Running
    settings: CausalSettings


def _ascending(text: str) -> tuple[int, ...]:
    """Numbers in ascending order, each once."""
    return tuple(sorted(set(counts(text))))


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="benchmark", description="Measure what Linformer attention costs.", allow_abbrev=False)
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    _add_causal(commands)
    return parser


def _add_causal(commands: Any) -> None:
    parser = commands.add_parser(
        "causal",
        help="the decoder's self-attention, in decoding and in training",
        description="Causal Linformer attention against full attention: a step of beam search with whole models, and "
        "forward and backward of the attention alone.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=causal.run)
    _add_running(parser)

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
    option("--beams", type=_ascending, default="1,4", metavar="N[,N]", help="beam widths")
    option("--positions", type=_ascending, default="64,256,1024,4096", metavar="N[,N]", help="target tokens so far")

    group = parser.add_argument_group("training")
    option("--batch", type=count, default=1, help="sentences of a batch")
    option("--lengths", type=_ascending, default="512,2048,8192", metavar="T[,T]", help="tokens of a sentence")
    option("--eager-limit", type=count, default=2048, help="longest T for fairseq's attention, which makes a T x T")
    option("--chunk-sizes", type=_ascending, default="32,64,128,256", metavar="C[,C]", help="chunk sizes to try")


def _add_running(parser: argparse.ArgumentParser) -> None:
    """Options that every benchmark has."""
    group = parser.add_argument_group("running")
    group.add_argument(
        "--out", type=Path, required=True, default=argparse.SUPPRESS, metavar="DIR", help="folder for the report"
    )
    group.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to measure")
    group.add_argument("--dtype", choices=sorted(DTYPES), default="float32", help="type of all tensors")
    group.add_argument("--threads", type=count, default=cpu_count(), help="threads of torch")
    group.add_argument("--repeats", type=count, default=15, help="runs that count")
    group.add_argument("--warm-up", type=natural, default=2, help="runs before them")
    group.add_argument("--seed", type=natural, default=1, help="seed of weights and inputs")


def parse(argv: Sequence[str]) -> Arguments:
    """The benchmark that a command line asks for, checked as far as it can be without measuring."""
    args = vars(build_parser().parse_args(argv))
    if args["device"] == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda needs a GPU that torch sees: use --device cpu.")
    if args["dim"] < 4:
        raise UserError(f"--dim {args['dim']} is too small for fairseq's positions: use 4 or more.")
    if args["dim"] % args["heads"]:
        raise UserError(f"--dim {args['dim']} is not divisible by --heads {args['heads']}: change one of them.")
    if args["out"].exists() and not args["out"].is_dir():
        raise UserError(f"--out {args['out']} is a file: name a folder.")
    command = shlex.join(["python", "-m", "linformer_fairseq.benchmark", *argv])
    running = Running(command=command, **_taken(args, Running))
    settings = CausalSettings(**_taken(args, CausalSettings))
    return Arguments(args["run"], running, settings)


def _taken(args: dict[str, Any], kind: type) -> dict[str, Any]:
    """The options that a dataclass has fields for."""
    return {field.name: args[field.name] for field in dataclasses.fields(kind) if field.name in args}
