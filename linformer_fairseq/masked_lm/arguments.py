"""The command line of the study."""

import argparse
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.arguments import (
    Parser,
    check_folder,
    count,
    counts,
    cut_at_dashes,
    names_of,
    natural,
    paths,
    positive,
    rate,
)
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.machine import cpu_count
from linformer_fairseq.models.linformer_roberta import FAIRSEQ_ROBERTA_ARCHITECTURES
from linformer_fairseq.modules.linformer_attention import SHARINGS
from linformer_fairseq.modules.value_convolution import check_width
from linformer_fairseq.recipe.precision import PRECISIONS, on_cpu

from .arms import ARMS, LINFORMER, Arm

SIZES = {"layers": "layers", "dim": "embed-dim", "ffn_dim": "ffn-embed-dim", "heads": "attention-heads"}
"""The options of a model's size, and what they are called after `--encoder-` in fairseq."""


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """How an encoder is trained, whatever its task."""

    lr: float
    """The highest learning rate."""
    dropout: float
    weight_decay: float
    precision: str
    train_args: tuple[str, ...]
    """Of fairseq-train, as they are."""

    @property
    def on_cpu(self) -> bool:
        return on_cpu(self.train_args)


@dataclass(frozen=True, kw_only=True)
class Settings(TrainingSettings):
    """What all models of a study share, whatever their attention, length and seed."""

    valid: tuple[str, ...]
    """The files that are validated on; empty for the last one."""
    vocabulary: int
    arch: str
    size_flags: tuple[str, ...]
    convolution: int
    """The width of the convolution over the values that all models have beside their attention; 0 for none."""
    updates: int
    max_tokens: int
    warmup_updates: int
    validate_updates: int


@dataclass(frozen=True)
class Study:
    """What one invocation asks for."""

    command: str
    data: Path
    out: Path
    settings: Settings
    arms: list[Arm]
    lengths: list[int]
    """Tokens of a block, ascending; what is not compared over lengths has the first."""
    k: int
    ks: list[int]
    """The projected dimensions of Linformer at the first two lengths."""
    sharings: list[str]
    """Of Linformer, at the first length and `k`."""
    seeds: list[int]
    swap: bool
    costs: bool
    repeats: int
    merge: tuple[Path, ...]
    report_only: bool
    threads: int
    jobs: int


def build_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="masked_lm",
        description="Pretrain masked language models with each kind of attention on plain text, and report perplexity "
        "by updates, projected dimension, sharing and length; replace the attention of a trained one; measure speed "
        "and memory.",
        epilog="What follows -- goes to every fairseq-train as it is.",
    )
    option = parser.add_argument
    option("--out", type=Path, required=True, metavar="DIR", help="folder for all results")
    option(
        "--data",
        type=Path,
        metavar="DIR",
        help="folder of plain text, *.txt or *.txt.gz: a paragraph a line, an empty line between two documents",
    )
    option("--valid", metavar="NAME[,NAME]", help="files to validate on, without .txt (default: the last by name)")
    option("--vocabulary", type=count, default=8000, help="sentencepiece's subwords")

    group = parser.add_argument_group("models")
    option = group.add_argument
    names = list(FAIRSEQ_ROBERTA_ARCHITECTURES)
    option("--arch", choices=names, default="roberta_tiny", help="the Transformer's architecture")
    for name in SIZES:
        option(f"--{name.replace('_', '-')}", type=count, metavar="SIZE", help="in place of that of --arch")
    option(
        "--convolution",
        type=natural,
        default=0,
        metavar="WIDTH",
        help="tokens, an odd number: give every model a convolution over the values beside its attention",
    )
    group = parser.add_argument_group("what is compared")
    option = group.add_argument
    every = ",".join(ARMS)
    option("--arms", type=names_of(list(ARMS), "a model"), default=every, metavar="NAME[,NAME]", help="the models")
    option("--lengths", type=counts, default="512,1024,2048", metavar="N[,N]", help="tokens of a block")
    option("-k", "--k", type=count, default=128, help="projected dimension, where it is not compared")
    option(
        "--ks", type=counts, default="64,128,256", metavar="K[,K]", help="those of Linformer at the first two lengths"
    )
    option(
        "--sharings",
        type=names_of(SHARINGS, "a --linformer-sharing"),
        default=",".join(SHARINGS),
        metavar="NAME[,NAME]",
        help="who shares a projection of Linformer, at the first length",
    )
    option("--seeds", type=counts, default="1,2,3", metavar="S[,S]", help="of some models; the others have the first")
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": True}
    option(
        "--swap",
        **switch,
        help="replace the attention of the trained Transformer by each other kind, and analyse its maps",
    )
    option("--costs", **switch, help="measure speed and memory of training at every length")
    option("--cost-repeats", dest="repeats", type=count, default=5, metavar="R", help="steps that are timed")
    option(
        "--merge",
        type=paths,
        default=(),
        metavar="FILE[,FILE]",
        help="results.json of the same study on other machines, to be in the report",
    )
    option("--report-only", action="store_true", help="write report.md and plots from DIR/results.json, train nothing")

    group = parser.add_argument_group("training")
    option = group.add_argument
    option("--updates", type=count, default=10_000, help="of every training")
    option("--max-tokens", type=count, default=8192, help="tokens of an update")
    option("--warmup-updates", type=natural, default=500, help="updates in which the learning rate rises")
    option("--validate-updates", type=count, default=250, metavar="U", help="updates between two validations")
    add_training_options(group, lr=1e-3)
    return parser


def add_training_options(group: argparse._ArgumentGroup, lr: float) -> None:
    """Adds the options of `TrainingSettings`, and how many trainings run beside each other.

    Args:
        lr: the default of --lr.
    """
    option = group.add_argument
    option("--lr", type=positive, default=lr, help="highest learning rate; it falls linearly to 0")
    option(
        "--dropout",
        type=rate,
        default=0.1,
        help="dropout, except on attention probabilities, which some kinds do not have",
    )
    option("--weight-decay", type=rate, default=0.01, help="Adam's")
    option("--precision", choices=PRECISIONS, default="fp32", help="of training")
    option("--jobs", type=count, default=1, help="trainings at a time")
    option("--threads", type=count, default=cpu_count(), help="threads of each")


def size_flags(args: dict[str, Any]) -> tuple[str, ...]:
    """Takes the sizes of models out of parsed arguments, and returns fairseq's flags of those that were given."""
    sizes = {name: args.pop(name) for name in SIZES}
    words = [(f"--encoder-{SIZES[name]}", str(size)) for name, size in sizes.items() if size]
    return tuple(word for pair in words for word in pair)


def _check_width(width: int) -> None:
    try:
        check_width(width)
    except ValueError:
        raise UserError(f"--convolution must be an odd number of tokens, or 0 for none, not {width}.") from None


def parse(argv: Sequence[str]) -> Study:
    """Returns the study that a command line asks for, checked as far as it can be without doing anything."""
    own, train_args = cut_at_dashes(argv)
    args = vars(build_parser().parse_args(own))
    check_folder("--out", args["out"])
    if args["data"] is None and not args["report_only"]:
        raise UserError("--data is missing: name a folder of plain text.")
    sizes = size_flags(args)
    valid = args.pop("valid")
    if args["warmup_updates"] >= args["updates"]:
        raise UserError(
            f"--warmup-updates {args['warmup_updates']} leaves none of {args['updates']} --updates: give fewer."
        )
    if args["convolution"]:
        _check_width(args["convolution"])
    names = ("vocabulary", "convolution", "updates", "max_tokens", "lr", "warmup_updates", "dropout", "weight_decay")
    settings = Settings(
        valid=tuple(valid.split(",")) if valid else (),
        arch=args.pop("arch"),
        size_flags=sizes,
        train_args=tuple(train_args),
        **{name: args.pop(name) for name in (*names, "validate_updates", "precision")},
    )
    longest = max(args["lengths"])
    if longest > settings.max_tokens:
        raise UserError(f"--max-tokens {settings.max_tokens} holds no block of {longest} tokens: give more.")
    shortest = min(args["lengths"])
    arms = args.pop("arms")
    for name, ks in (("--k", [args["k"]]), ("--ks", args["ks"] if LINFORMER in arms else [])):
        if max(ks, default=0) > shortest:
            raise UserError(f"{name} {max(ks)} is more than the {shortest} tokens of --lengths: choose k <= n.")
    return Study(
        command=shlex.join(["python", "-m", "linformer_fairseq.masked_lm", *argv]),
        settings=settings,
        arms=[arm for name, arm in ARMS.items() if name in arms],
        **{name: sorted(set(args.pop(name))) for name in ("lengths", "ks", "seeds")},
        **args,
    )
