"""The benchmark's command line, a subcommand for each benchmark."""

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.arguments import Parser, check_device, check_folder, count, natural
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.machine import cpu_count

from .causal.arguments import add_parser as add_causal
from .efficiency.arguments import add_parser as add_efficiency
from .rows import fields_of
from .run_options import DTYPES, RunOptions


@dataclass(frozen=True)
class Arguments:
    """What one invocation asks for."""

    run: Callable[[RunOptions, Any], None]
    options: RunOptions
    settings: Any
    """The sizes of the benchmark that `run` is."""


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="benchmark", description="Measure what Linformer attention costs.")
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for add in (add_causal, add_efficiency):
        _add_run_options(add(commands))
    return parser


def _add_run_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options that every benchmark has."""
    group = parser.add_argument_group("running")
    group.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for the report")
    group.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to measure")
    group.add_argument("--dtype", choices=sorted(DTYPES), default="float32", help="type of all tensors")
    group.add_argument("--threads", type=count, default=cpu_count(), help="threads of torch")
    group.add_argument("--repeats", type=count, default=15, help="runs that count")
    group.add_argument("--warm-up", type=natural, default=2, help="runs before them")
    group.add_argument("--seed", type=natural, default=1, help="seed of weights and inputs")


def parse(argv: Sequence[str]) -> Arguments:
    """Returns the benchmark that a command line asks for, checked as far as it can be without measuring.

    Raises:
        UserError: the command line is refused.
    """
    args = vars(build_parser().parse_args(argv))
    check_device(args["device"])
    if args["dim"] < 4:
        raise UserError(f"--dim {args['dim']} is too small for fairseq's positions: use 4 or more.")
    if args["dim"] % args["heads"]:
        raise UserError(f"--dim {args['dim']} is not divisible by --heads {args['heads']}: change one of them.")
    check_folder("--out", args["out"])
    command = shlex.join(["python", "-m", "linformer_fairseq.benchmark", *argv])
    options = RunOptions(command=command, **fields_of(RunOptions, args))
    settings = args["settings"](**fields_of(args["settings"], args))
    return Arguments(args["run"], options, settings)
