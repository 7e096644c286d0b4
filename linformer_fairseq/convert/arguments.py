"""The command line of the conversion: the model's own flags, and what to compare on."""

import shlex
from argparse import SUPPRESS, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq.dataclass.utils import gen_parser_from_dataclass

from linformer_fairseq.cli.arguments import Parser, ascending, check_folder, count, natural
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.machine import cpu_count
from linformer_fairseq.models.config import LinformerConfig, default_flags
from linformer_fairseq.modules.registry import flag_of

CONVERTED_KIND = "two-level"
"""The kind of attention of a converted model, unless told otherwise: it translates as before."""
EXACT_START = {"linformer_init": "identity", "linformer_mask_empty_slots": True}
"""With these, learned E and F start as full attention of up to k tokens."""


@dataclass(frozen=True)
class Conversion:
    """What one invocation asks for."""

    command: str
    checkpoint: Path
    output: Path
    config: LinformerConfig
    """The new model's attention."""
    data: Path | None
    """What both models are compared on; None for no comparison."""
    subset: str
    report: Path | None
    lengths: tuple[int, ...]
    fit: int
    """Sentences that E and F are fitted on; 0 for none."""
    threads: int
    seed: int

    @property
    def model_flags(self) -> str:
        """Returns the flags by which fairseq-train builds this model, with any architecture of this package."""
        kind = self.config.linformer_projection
        words = ["--linformer-projection", kind]
        for name, default in default_flags(kind).items():
            value = getattr(self.config, name)
            if str(value) != str(default):
                words += [flag_of(name)] if value is True else [flag_of(name), str(value)]
        return shlex.join(words)


def build_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="convert",
        description="Convert a checkpoint of fairseq's `transformer` to two-level attention, or to the kind that "
        "--linformer-projection names, for translation or fine-tuning (--finetune-from-model).",
    )
    parser.add_argument("checkpoint", type=Path, metavar="CHECKPOINT", help="that fairseq-train saved")
    parser.add_argument("output", type=Path, metavar="OUT", help="the file to write")
    group = parser.add_argument_group("what is compared")
    group.add_argument("--data", type=Path, metavar="DATA", help="folder that fairseq-preprocess wrote")
    group.add_argument("--subset", default="valid", help="split to compare both models on")
    group.add_argument("--report", type=Path, metavar="DIR", help="folder for a report with a picture")
    group.add_argument("--lengths", type=ascending, default="8,16,32,64", metavar="N[,N]", help="where buckets end")
    group.add_argument(
        "--fit",
        type=natural,
        default=0,
        metavar="SENTENCES",
        help="fit learned E and F to the attention maps of this many training sentences",
    )
    group.add_argument("--threads", type=count, default=cpu_count(), help="threads of torch")
    group.add_argument("--seed", type=natural, default=1, help="seed of the choice of sentences, and of random starts")
    group = parser.add_argument_group("the new model", "as for fairseq-train", argument_default=SUPPRESS)
    gen_parser_from_dataclass(group, LinformerConfig(), delete_default=True)
    parser.set_defaults(linformer_projection=CONVERTED_KIND)
    return parser


def parse(argv: Sequence[str]) -> Conversion:
    """Returns the conversion that a command line asks for, checked as far as is possible without the checkpoint."""
    args = vars(build_parser().parse_args(argv))
    given = {name: args.pop(name) for name in list(args) if name.startswith("linformer_")}
    config = _config(given)
    for option in ("report", "fit"):
        if args[option] and args["data"] is None:
            raise UserError(f"--{option} needs --data: name the folder that fairseq-preprocess wrote.")
    if args["fit"] and config.linformer_sharing not in ("headwise", "none"):
        raise UserError(
            "--fit finds an E and an F for every layer: use --linformer-sharing headwise or none, not "
            f"{config.linformer_sharing}."
        )
    if args["output"].resolve() == args["checkpoint"].resolve():
        raise UserError(f"{args['output']} is the checkpoint itself: name another OUT.")
    if args["output"].is_dir() or not args["output"].parent.is_dir():
        raise UserError(f"{args['output']} cannot be written: name a file in a folder that exists.")
    if args["report"] is not None:
        check_folder("--report", args["report"])
    command = shlex.join(["python", "-m", "linformer_fairseq.convert", *argv])
    return Conversion(command=command, config=config, **args)


def _config(given: dict[str, object]) -> LinformerConfig:
    """Returns the attention that these flags ask for, where learned E and F have an `EXACT_START` by default."""
    flags = {**default_flags(given["linformer_projection"]), **given}
    try:
        config = LinformerConfig.from_namespace(Namespace(**flags))
        unset = config.used_options - given.keys()
        start = {name: value for name, value in EXACT_START.items() if name in unset}
        return LinformerConfig.from_namespace(Namespace(**{**flags, **start}))
    except ValueError as error:
        raise UserError(f"{error}.") from None
