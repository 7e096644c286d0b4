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
    names,
    names_of,
    paths,
    rate,
)
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.masked_lm.arguments import TrainingSettings, add_training_options
from linformer_fairseq.masked_lm.arms import ARMS
from linformer_fairseq.modules.linformer_attention import SHARINGS

ACCURACY = "accuracy"
METRICS = {
    ACCURACY: "Accuracy",
    "f1": "F1",
    "matthews": "Matthews correlation",
}
"""What a report calls each metric."""


@dataclass(frozen=True, kw_only=True)
class Settings(TrainingSettings):
    """How every model is fine-tuned."""

    epochs: int
    batch_size: int
    """Texts of an update."""
    warmup: float
    """The share of updates in which the learning rate rises."""
    truncate: bool
    """Whether longer texts than the models take are cut; otherwise they are refused."""


@dataclass(frozen=True)
class Study:
    """What one invocation asks for."""

    command: str
    pretrained: Path
    """The folder of a study of masked language models."""
    data: Path
    """A set, or a folder of sets."""
    out: Path
    settings: Settings
    sets: list[str]
    """Empty for all in `data`."""
    arms: list[str]
    """Empty for all that are pretrained."""
    length: int | None
    """n, the tokens that the models take; None for the least in `pretrained`."""
    k: int | None
    """None for that of the pretraining."""
    ks: list[int]
    """Linformer is fine-tuned with these, too."""
    sharings: list[str]
    """Likewise."""
    seeds: list[int]
    metrics: list[str]
    merge: tuple[Path, ...]
    report_only: bool
    threads: int
    jobs: int


def _metrics(text: str) -> list[str]:
    return list(dict.fromkeys([ACCURACY, *names_of(list(METRICS), "a metric")(text)]))


def build_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="classification",
        description="Fine-tune pretrained masked language models with each kind of attention on labelled texts, and "
        "report how many texts of the test set each of them classifies as they are labelled.",
        epilog="What follows -- goes to every fairseq-train as it is.",
    )
    option = parser.add_argument
    option("--out", type=Path, required=True, metavar="DIR", help="folder for all results")
    option("--pretrained", type=Path, metavar="DIR", help="the folder that linformer_fairseq.masked_lm wrote to")
    option(
        "--data",
        type=Path,
        metavar="DIR",
        help="a set, train, dev and test as .tsv or .tsv.gz with a header that names the columns label and text (or "
        "sentence); or a folder of sets",
    )

    group = parser.add_argument_group("what is compared")
    option = group.add_argument
    option("--sets", type=names, metavar="NAME[,NAME]", help="folders of DIR (default: all)")
    option(
        "--arms",
        type=names_of(list(ARMS), "a model"),
        metavar="NAME[,NAME]",
        help="the models (default: all that are pretrained)",
    )
    option("--length", type=count, metavar="N", help="tokens that the models take (default: the least pretrained)")
    option("-k", "--k", type=count, help="projected dimension (default: that of the pretraining)")
    option("--ks", type=counts, metavar="K[,K]", help="Linformer with each of these, too")
    option(
        "--sharings",
        type=names_of(SHARINGS, "a --linformer-sharing"),
        metavar="NAME[,NAME]",
        help="Linformer with each of these sharings of projections, too",
    )
    option("--seeds", type=counts, default="1,2,3", metavar="S[,S]", help="a fine-tuning for each")
    option(
        "--metrics",
        type=_metrics,
        default=ACCURACY,
        metavar="NAME[,NAME]",
        help=f"of {', '.join(METRICS)}; accuracy is always there",
    )
    option(
        "--merge",
        type=paths,
        default=(),
        metavar="FILE[,FILE]",
        help="results.json of the same study on other machines, to be in the report",
    )
    option("--report-only", action="store_true", help="write report.md and the plot from DIR/results.json, train none")

    group = parser.add_argument_group("fine-tuning")
    option = group.add_argument
    option("--epochs", type=count, default=10, help="of every training, of which the best on dev counts")
    option("--batch-size", type=count, default=32, help="texts of an update")
    option("--warmup", type=rate, default=0.06, help="share of the updates in which the learning rate rises")
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": True}
    option("--truncate", **switch, help="keep the beginning of texts that are too long for the models")
    add_training_options(group, lr=5e-4)
    return parser


def parse(argv: Sequence[str]) -> Study:
    """Returns the study that a command line asks for, checked as far as it can be without doing anything."""
    own, train_args = cut_at_dashes(argv)
    args = vars(build_parser().parse_args(own))
    check_folder("--out", args["out"])
    if not args["report_only"]:
        for name, what in (
            ("pretrained", "the folder that python -m linformer_fairseq.masked_lm wrote to"),
            ("data", "a folder of labelled texts"),
        ):
            if args[name] is None:
                raise UserError(f"--{name} is missing: name {what}.")
    for name in ("sets", "arms", "ks", "sharings"):
        args[name] = args[name] or []
    of_settings = ("epochs", "batch_size", "lr", "warmup", "dropout", "weight_decay", "precision", "truncate")
    return Study(
        command=shlex.join(["python", "-m", "linformer_fairseq.classification", *argv]),
        settings=Settings(**{name: args.pop(name) for name in of_settings}, train_args=tuple(train_args)),
        seeds=list(dict.fromkeys(args.pop("seeds"))),
        **args,
    )
