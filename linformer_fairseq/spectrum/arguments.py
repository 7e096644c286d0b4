"""The command line of the analysis."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from linformer_fairseq.cli.arguments import Parser, ascending, check_device, check_folder, count, natural, number
from linformer_fairseq.cli.machine import cpu_count

_share = number(float, 1e-3, 1 - 1e-3, "a number from 0.001 to 0.999")


@dataclass(frozen=True)
class Arguments:
    """What one invocation asks for."""

    command: str
    checkpoint: Path
    data: Path
    out: Path
    subset: str
    sentences: int
    """The largest number of sentences that are measured; 0 for all."""
    lengths: tuple[int, ...]
    """The ends of the length buckets, in tokens; a last bucket holds all longer sentences."""
    energy: float
    rank: int
    device: str
    threads: int
    seed: int


def build_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="spectrum",
        description="Singular values of the attention maps of a fairseq Transformer, layer by layer and head by head, "
        "and what they suggest for --linformer-k.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="that fairseq-train saved")
    parser.add_argument("data", type=Path, metavar="DATA", help="folder that fairseq-preprocess wrote")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the report")
    parser.add_argument("--subset", default="valid", help="split to take sentences from")
    parser.add_argument("--sentences", type=natural, default=1000, help="how many, drawn at random; 0: all")
    parser.add_argument(
        "--lengths", type=ascending, default="16,32,64,128", metavar="N[,N]", help="where length buckets end, in tokens"
    )
    parser.add_argument("--energy", type=_share, default=0.9, help="share of a map's energy that its rank must hold")
    parser.add_argument("--rank", type=count, default=8, help="rank of the heat maps")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to compute")
    parser.add_argument("--threads", type=count, default=cpu_count(), help="threads of torch")
    parser.add_argument("--seed", type=natural, default=1, help="seed of the choice of sentences")
    return parser


def parse(argv: Sequence[str]) -> Arguments:
    """Returns the analysis that a command line asks for, checked as far as it can be without doing anything."""
    args = vars(build_parser().parse_args(argv))
    check_device(args["device"])
    check_folder("--out", args["out"])
    return Arguments(command=shlex.join(["python", "-m", "linformer_fairseq.spectrum", *argv]), **args)
