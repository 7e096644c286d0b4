"""The command line of the conversion: the model's own flags, and what to compare on."""

import shlex
from argparse import SUPPRESS, ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.utils import import_user_module

from linformer_fairseq.cli.arguments import Parser, ascending, check_folder, count, natural
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.machine import cpu_count
from linformer_fairseq.models.config import LinformerConfig, add_flags, flag_defaults

from .families import FAMILIES

CONVERTED_KIND = "two-level"
"""The kind of attention of a converted model, unless told otherwise: short texts get the same outputs as before."""
LEAST_SHARING = ("headwise", "none")
"""The values of `--linformer-sharing` with which every layer has an E and an F of its own."""


@dataclass(frozen=True)
class Conversion:
    """What one invocation asks for."""

    command: str
    checkpoint: Path
    output: Path
    flags: dict[str, Any]
    """The flags of the new model's attention that were given, and its kind."""
    data: Path | None
    """What both models are compared on; None for random tokens."""
    subset: str
    texts: int
    """Random texts of each length, without `data`; 0 for no comparison."""
    report: Path | None
    lengths: tuple[int, ...] | None
    """Where the ranges of lengths and positions end; None for powers of two."""
    fit: int
    """Sentences that E and F are fitted on; 0 for none."""
    threads: int
    seed: int
    user_dir: str | None
    """A folder that adds kinds of attention, as fairseq-train takes it."""


def build_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="convert",
        description="Convert a checkpoint of fairseq's transformer, transformer_lm or roberta to two levels in all its "
        "attention, or to the kind that --linformer-projection names, without training and without data. Both models "
        "are compared, on random tokens unless there is --data.",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="that fairseq-train saved")
    parser.add_argument("output", type=Path, metavar="OUT", help="the file to write")
    group = parser.add_argument_group("what is compared")
    group.add_argument(
        "--data", type=Path, metavar="DATA", help="folder that fairseq-preprocess wrote, to compare on text"
    )
    group.add_argument("--subset", default="valid", help="split of DATA to compare both models on")
    group.add_argument(
        "--texts",
        type=natural,
        default=2,
        metavar="T",
        help="without --data: random texts of each length to compare both models on; 0 compares nothing",
    )
    group.add_argument("--report", type=Path, metavar="DIR", help="folder for a report with a picture")
    group.add_argument(
        "--lengths",
        type=ascending,
        metavar="N[,N]",
        help="where ranges of lengths end, and without --data the lengths themselves (default: powers of two, and the "
        "longest text that gets full attention)",
    )
    group.add_argument(
        "--fit",
        type=natural,
        default=0,
        metavar="SENTENCES",
        help="fit learned E and F to the attention maps of this many training sentences",
    )
    group.add_argument("--threads", type=count, default=cpu_count(), help="threads of torch")
    group.add_argument(
        "--seed", type=natural, default=1, help="seed of random tokens, of the choice of sentences and of random starts"
    )
    _add_user_dir(parser)
    group = parser.add_argument_group(
        "the new model",
        "as for fairseq-train; a language model, masked or not, has --linformer-projection, -k and the options of its "
        "kind",
        argument_default=SUPPRESS,
    )
    add_flags(group, LinformerConfig)
    parser.set_defaults(linformer_projection=CONVERTED_KIND)
    return parser


def parse(argv: Sequence[str]) -> Conversion:
    """Returns the conversion that a command line asks for, checked as far as is possible without the checkpoint."""
    _import_user_dir(argv)
    args = vars(build_parser().parse_args(argv))
    given = {name: args.pop(name) for name in list(args) if name.startswith("linformer_")}
    _check_flags(given)
    if args["fit"] and args["data"] is None:
        raise UserError("--fit needs --data: name the folder that fairseq-preprocess wrote.")
    if args["report"] is not None and args["data"] is None and not args["texts"]:
        raise UserError("--report needs a comparison: leave out --texts 0, or name text with --data.")
    sharing = given.get("linformer_sharing", flag_defaults(LinformerConfig)["linformer_sharing"])
    if args["fit"] and sharing not in LEAST_SHARING:
        raise UserError(
            f"--fit finds an E and an F for every layer: use --linformer-sharing {' or '.join(LEAST_SHARING)}, not "
            f"{sharing}."
        )
    if args["output"].resolve() == args["checkpoint"].resolve():
        raise UserError(f"{args['output']} is the checkpoint itself: name another OUT.")
    if args["output"].is_dir() or not args["output"].parent.is_dir():
        raise UserError(f"{args['output']} cannot be written: name a file in a folder that exists.")
    if args["report"] is not None:
        check_folder("--report", args["report"])
    command = shlex.join(["python", "-m", "linformer_fairseq.convert", *argv])
    return Conversion(command=command, flags=given, **args)


def _check_flags(given: dict[str, Any]) -> None:
    """Refuses flags of which no model of any family can be built."""
    refusals = []
    for family in FAMILIES:
        try:
            family.config(given)
        except UserError as error:
            refusals.append(error)
    if len(refusals) == len(FAMILIES):
        raise refusals[0]


def _add_user_dir(parser: ArgumentParser) -> None:
    parser.add_argument("--user-dir", metavar="DIR", help="folder that adds kinds of attention, as for fairseq-train")


def _import_user_dir(argv: Sequence[str]) -> None:
    """Imports the module of `--user-dir` before the flags of all kinds are asked for, as fairseq does."""
    parser = Parser(add_help=False)
    _add_user_dir(parser)
    given, _ = parser.parse_known_args(argv)
    try:
        import_user_module(given)
    except FileNotFoundError:
        raise UserError(f"--user-dir {given.user_dir} does not exist: name a folder.") from None
