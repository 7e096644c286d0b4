"""`python -m linformer_fairseq.convert CHECKPOINT OUT`: a trained model of fairseq's with another kind of attention."""

import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from pathlib import Path

import torch
from fairseq.utils import import_user_module

from linformer_fairseq.cli.arguments import Parser, ascending, count, natural
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import check_output
from linformer_fairseq.cli.main import exit_status
from linformer_fairseq.models.config import add_flags

from .run import run

RANDOM_TEXTS = 2
USER_DIR = Parser(add_help=False)
USER_DIR.add_argument("--user-dir", metavar="DIR", help="folder that adds kinds of attention, as for fairseq-train")


def parse(argv: Sequence[str]) -> Namespace:
    """Returns what a command line asks for, checked as far as is possible without the checkpoint; `flags` are those of
    the new model's attention that were given, and its kind."""
    given, _ = USER_DIR.parse_known_args(argv)
    try:
        import_user_module(given)  # before the flags of all kinds are asked for, as fairseq does
    except FileNotFoundError:
        raise UserError(f"--user-dir {given.user_dir} does not exist: name a folder.") from None
    args = vars(build_parser().parse_args(argv))
    flags = {name: args.pop(name) for name in list(args) if name.startswith("linformer_")}
    if args["to_fairseq"] and (flags or args["fit"]):
        raise UserError("--to-fairseq leaves nothing to choose: leave out --fit and flags of the attention.")
    if args["fit"] and args["data"] is None:
        raise UserError("--fit needs --data: name the folder that fairseq-preprocess wrote.")
    if args["texts"] and args["data"] is not None:
        raise UserError("--texts is for random texts: leave it out, or give 0 to compare nothing.")
    if args["subset"] is not None and args["data"] is None:
        raise UserError("--subset needs --data: name the folder that fairseq-preprocess wrote.")
    for name in ("csv", "lengths", "subset"):
        if args[name] is not None and args["texts"] == 0:
            raise UserError(f"--{name} needs a comparison: leave out --texts 0.")
    args["subset"], args["texts"] = args["subset"] or "valid", RANDOM_TEXTS if args["texts"] is None else args["texts"]
    if args["fit"] and flags.get("linformer_sharing", "headwise") != "headwise":
        raise UserError("--fit finds an E and an F for every layer: leave out --linformer-sharing.")
    if args["output"].resolve() == args["checkpoint"].resolve():
        raise UserError(f"{args['output']} is the checkpoint itself: name another OUT.")
    if args["csv"] is not None and args["csv"].resolve() in (args["output"].resolve(), args["checkpoint"].resolve()):
        raise UserError(f"{args['csv']} is a checkpoint: name another file for --csv.")
    for path in (args["output"], args["csv"]):
        if path is not None:
            check_output(path)
    # with two levels, unless told otherwise, short texts get the same outputs as before
    return Namespace(flags={"linformer_projection": "two-level", **flags}, **args)


def build_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="convert",
        parents=[USER_DIR],
        description="Convert a checkpoint of any of fairseq's models with attention to two levels in all attention, or "
        "to the kinds that --linformer-projection and the flags of places name, without training and without data, or "
        "back to fairseq's model. The outputs of both models are compared, on random tokens unless there is --data.",
    )
    add = parser.add_argument
    add("checkpoint", type=Path, metavar="CHECKPOINT", help="that fairseq-train saved")
    add("output", type=Path, metavar="OUT", help="the file to write")
    add("--to-fairseq", action="store_true", help="convert a model of this package back to fairseq's")
    add("--data", type=Path, metavar="DATA", help="folder that the model was trained on, to compare on its text")
    add("--subset", help="split of DATA to compare both models on (default: valid)")
    told = f"random texts of each length, without --data (default: {RANDOM_TEXTS}); 0: no comparison"
    add("--texts", type=natural, metavar="T", help=told)
    told = "where ranges of lengths end, or lengths of random texts (default: powers of two, and the last exact one)"
    add("--lengths", type=ascending, metavar="N[,N]", help=told)
    add("--csv", type=Path, metavar="FILE", help="where the comparison is written to, too")
    add("--fit", type=natural, default=0, metavar="SENTENCES", help="training sentences of DATA to fit E and F to")
    add("--threads", type=count, default=torch.get_num_threads(), help="threads of torch")
    add("--seed", type=natural, default=1, help="seed of random tokens, sentences to fit to and fresh parameters")
    add_flags(parser.add_argument_group("the new model", "as for fairseq-train", argument_default=SUPPRESS))
    return parser


if __name__ == "__main__":
    sys.exit(exit_status(lambda: run(parse(sys.argv[1:])), interrupted="no checkpoint was written"))
