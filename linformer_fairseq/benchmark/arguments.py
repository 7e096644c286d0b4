"""The benchmark's command line, a subcommand for each benchmark."""

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from linformer_fairseq.cli.arguments import Parser, check_device, check_folder
from linformer_fairseq.cli.errors import UserError

from .causal.run import run as run_causal
from .causal.settings import CausalSettings
from .efficiency.run import run as run_efficiency
from .efficiency.settings import SMOKE, EfficiencySettings
from .options import add_options, fields_of
from .run_options import RunOptions


@dataclass(frozen=True)
class Arguments:
    """What one invocation asks for."""

    run: Callable[[RunOptions, Any], None]
    options: RunOptions
    settings: Any
    """The options of that benchmark alone."""


class _Smoke(argparse.Action):
    """Takes tiny sizes; those that come after it on the command line still count."""

    def __call__(self, parser: Any, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        for name, value in SMOKE.items():
            setattr(namespace, name, value)


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(prog="benchmark", description="Measure what Linformer attention costs.")
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    causal = commands.add_parser(
        "causal",
        help="the decoder's self-attention, in decoding and in training",
        description="Causal Linformer attention against full attention: a step of beam search with whole models, and "
        "forward and backward of the attention alone.",
    )
    causal.set_defaults(run=run_causal, settings=CausalSettings)
    efficiency = commands.add_parser(
        "efficiency",
        help="attention modules against length, with peers, and whole models",
        description="Time and memory of attention modules against length, Linformer beside full attention and the "
        "attention of other packages (pip install 'linformer_fairseq[peers]'); parameters, inference and training of "
        "whole models. An interrupted run goes on where it was. What does not fit into the free memory is left out.",
    )
    efficiency.set_defaults(run=run_efficiency, settings=EfficiencySettings)
    smoke = "tiny sizes, to see that all of it works"
    efficiency.add_argument("--smoke", action=_Smoke, nargs=0, default=argparse.SUPPRESS, help=smoke)
    for command in (causal, efficiency):
        add_options(command, command.get_default("settings"))
        add_options(command, RunOptions)
    return parser


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
