"""The study's command line."""

import argparse
import dataclasses
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from linformer_fairseq.cli.arguments import (
    Parser,
    ascending,
    count,
    cut_at_dashes,
    names_of,
    natural,
    number,
    paths,
    positive,
    rate,
)
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.precision import PRECISIONS

from .arms import ARMS, CONVERTED, SEVERAL_SEEDS, START, TRANSFORMER, started_from, trainings
from .datasets import dataset_of
from .trainings import (
    POSITION_FLAGS,
    Settings,
    Text,
    Training,
    TrainingSettings,
    Translation,
    check_architecture,
    training_of,
)

Group = TypeVar("Group", Text, TrainingSettings, Translation)
MADE_SEED = 1
"""Of what is made on the spot."""
OF_FOLDERS, OF_MADE = ("training_files",), ("made_train", "made_test")
"""Options of a text in a folder, and of one that is made on the spot."""
DEFAULTS = {"training_files": ("train",), "made_train": 200, "made_test": 12}
"""Those of these options, which are not given unless it is for the text that there is."""


@dataclass(frozen=True)
class Study:
    """What one invocation asks for."""

    command: str
    out: Path
    settings: Settings
    """Shared by all trainings on documents; each has its own seed and flags."""
    start_resolutions: tuple[int, ...]
    """Sentences of the examples that the start is trained on."""
    resolutions: tuple[int, ...]
    """Sentences of the examples that documents are trained on, besides whole documents."""
    lengths: tuple[int, ...]
    """Tokens at which documents are cut to be translated, and at which time and memory are measured."""
    k: int
    starts: dict[int, Training]
    """Of each seed, the training on sentences that all others begin with."""
    trainings: list[Training]
    """Of the arms, seed by seed."""
    test: bool
    """Whether to translate the test set too."""
    batch_tokens: int
    """Source tokens of a batch in translation; a longer document has one of its own."""
    free: bool
    """Whether to translate without forcing the number of sentences too."""
    costs: bool
    """Whether to measure time and memory."""
    repeats: int
    """Training steps that count for a time."""
    merge: tuple[Path, ...]
    """The results.json of the same study on other machines."""
    report_only: bool
    """Whether to do nothing but write the report of the results that are stored in `out`."""
    threads: int
    jobs: int

    @property
    def first_seed(self) -> int:
        """That which all models have."""
        return min(self.starts)


def _arms(text: str) -> list[str]:
    names = names_of(list(ARMS), "a model of the study")(text)
    if CONVERTED.name in names and TRANSFORMER not in names:
        raise argparse.ArgumentTypeError(
            f"{CONVERTED.name} is made of the Transformer: name {TRANSFORMER}, too, among --arms"
        )
    return names


def _language(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a language code such as en")
    return text


def build_parser() -> Parser:
    """Returns the parser of the command line."""
    parser = Parser(
        prog="documents",
        description="Train a Transformer on a few sentences at a time, go on from there on documents with each kind of "
        "attention, and compare the translations of whole documents.",
        epilog="What follows -- goes to every fairseq-train as it is.",
    )
    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction}
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for all results")
    parser.add_argument(
        "--arms",
        type=_arms,
        default=",".join(ARMS),
        metavar="NAME[,NAME]",
        help="what to train, to translate with and to report on",
    )
    parser.add_argument(
        "--seeds",
        type=ascending,
        default="1,2,3",
        metavar="S[,S]",
        help=f"seeds; {', '.join(SEVERAL_SEEDS)} have all, the others the first",
    )
    parser.add_argument("-k", "--k", type=count, default=64, help="slots of Linformer and windows of two levels")
    parser.add_argument(
        "--resolutions",
        type=ascending,
        default="1,2,4,8,16,32",
        metavar="N[,N]",
        help="sentences of the examples that documents are trained on, besides whole documents",
    )
    parser.add_argument(
        "--start-resolutions",
        type=ascending,
        default="1,2,4,8",
        metavar="N[,N]",
        help="sentences of the examples that the first training has",
    )
    parser.add_argument(
        "--lengths",
        type=ascending,
        default="512,1024,2048,4096",
        metavar="N[,N]",
        help="tokens at which documents are cut to be translated, and of the documents that are timed",
    )
    parser.add_argument("--start-updates", type=count, default=6000, help="updates of the first training")
    parser.add_argument("--start-lr", type=positive, default=1e-3, help="its highest learning rate")
    parser.add_argument("--start-warmup-updates", type=natural, default=1000, help="its updates up to that rate")
    parser.add_argument("--start-dropout", type=rate, default=0.3, help="its dropout")
    parser.add_argument("--start-max-tokens", type=count, help="its tokens per update (default: those of --max-tokens)")
    parser.add_argument("--batch-tokens", type=count, default=16384, help="source tokens translated at a time")
    parser.add_argument("--test", **switch, default=True, help="translate the test set, too, once all is decided")
    parser.add_argument("--free", **switch, default=True, help="translate without forcing the number of sentences, too")
    parser.add_argument("--costs", **switch, default=True, help="measure time and memory at these lengths")
    parser.add_argument("--cost-repeats", type=count, default=5, help="training steps that count for a time")
    parser.add_argument(
        "--merge",
        type=paths,
        metavar="FILE[,FILE]",
        help="results.json of the same study with other models or seeds, from other machines, to put into this one",
    )
    parser.add_argument(
        "--report-only",
        action="store_const",
        const=True,
        help="write the report from DIR/results.json, train nothing",
    )
    _add_text_options(parser.add_argument_group("text"))
    _add_training_options(parser.add_argument_group("models, training and translation"))
    return parser


def _add_text_options(group: argparse._ArgumentGroup) -> None:
    option = group.add_argument
    option(
        "--data",
        type=Path,
        metavar="DIR",
        help="train|valid|test.LANG[.gz], a sentence a line and an empty line between two documents; without it the "
        "text is synthetic",
    )
    option(
        "--training-files",
        type=lambda text: tuple(text.split(",")),
        metavar="NAME[,NAME]",
        help="files of DIR that make the training text, such as train,train_asv (default: train)",
    )
    option(
        "--glossary",
        type=natural,
        default=0,
        metavar="N",
        help="made documents in the training text that begin with a glossary of made-up names; the validation and test "
        "sets get some, too",
    )
    made = "documents of the synthetic corpus (default: {})"
    option("--made-train", type=count, help=f"training {made.format(DEFAULTS['made_train'])}")
    option("--made-test", type=count, help=f"validation {made.format(DEFAULTS['made_test'])}; the test set has as many")
    option("--source-lang", type=_language, default="en", help="language translated from")
    option("--target-lang", type=_language, default="de", help="language translated to")
    option("--bpe-merges", type=count, default=8000, help="sentencepiece's subwords")
    option("--max-subwords", type=natural, default=2048, help="longest example")


def _add_training_options(group: argparse._ArgumentGroup) -> None:
    option = group.add_argument
    option("--arch", help="fairseq architecture of the Transformer, instead of the four sizes below")
    option("--layers", type=count, default=3, help="layers of the encoder and of the decoder")
    option("--dim", type=count, default=256, help="model width")
    option("--heads", type=count, default=4, help="attention heads")
    option("--ffn-dim", type=count, default=1024, help="width of the feed-forward layers")
    option("--updates", type=count, default=3000, help="updates on documents")
    option("--max-tokens", type=count, default=4096, help="tokens of an update")
    option("--precision", choices=PRECISIONS, default="fp32", help="of training")
    option("--lr", type=positive, default=5e-4, help="highest learning rate")
    option("--warmup-updates", type=natural, default=200, help="updates up to the highest learning rate")
    option(
        "--linear-decay",
        action="store_const",
        const=True,
        help="let the learning rate fall linearly to 0 at the last of --updates, not with the inverse square root",
    )
    option("--dropout", type=rate, default=0.3, help="dropout")
    option("--label-smoothing", type=rate, default=0.1, help="label smoothing")
    option("--validate-updates", type=count, default=500, help="updates between validations, each saved")
    option("--keep-checkpoints", type=count, default=3, help="how many of these saves to keep")
    option("--beam", type=count, default=4, help="beam width")
    option("--lenpen", type=number(float, 0.0, 1e6, "a number from 0 on"), default=1.0, help="length penalty")
    option("--average", type=natural, default=3, help="translate with the mean of so many last saves; 0: the best one")
    option("--jobs", type=count, default=1, help="trainings at a time")
    option("--threads", type=count, default=1, help="threads of each")


def parse(argv: Sequence[str]) -> Study:
    """Returns the study that a command line asks for, checked as far as it can be without doing anything."""
    own, train_args = cut_at_dashes(argv)
    args = build_parser().parse_args(own)
    if args.report_only and args.merge:
        raise UserError("--report-only writes the report of what is stored: leave out --merge, or --report-only.")
    settings = _settings(args, [*_positions(args.lengths[-1]), *train_args])
    start_max_tokens = args.start_max_tokens or args.max_tokens
    _check_lengths(settings, start_max_tokens, args.lengths[-1])
    _check_average(args)
    on_sentences = dataclasses.replace(
        settings.training,
        updates=args.start_updates,
        lr=args.start_lr,
        warmup_updates=args.start_warmup_updates,
        dropout=args.start_dropout,
        max_tokens=start_max_tokens,
    )
    out = args.out.expanduser().resolve()
    runs = out / "runs"
    start = dataclasses.replace(settings, training=on_sentences)
    every = list(trainings(args.arms, args.seeds, args.k, settings, runs))
    starts = {training.seed: training_of(START, training.seed, args.k, start, runs) for training in every}
    return Study(
        command=shlex.join(["python", "-m", "linformer_fairseq.documents", *argv]),
        out=out,
        settings=settings,
        start_resolutions=args.start_resolutions,
        resolutions=args.resolutions,
        lengths=args.lengths,
        k=args.k,
        starts=starts,
        trainings=[started_from(training, checkpoint_of(starts[training.seed])) for training in every],
        test=args.test,
        batch_tokens=args.batch_tokens,
        free=args.free,
        costs=args.costs,
        repeats=args.cost_repeats,
        merge=args.merge or (),
        report_only=bool(args.report_only),
        threads=args.threads,
        jobs=args.jobs,
    )


def _positions(longest: int) -> list[str]:
    """Returns the flags of the longest texts that models are made for."""
    return [part for flag in POSITION_FLAGS for part in (flag, str(longest))]


def _settings(args: argparse.Namespace, train_args: list[str]) -> Settings:
    """Returns what all trainings on documents share, and refuses options that contradict each other."""
    if args.source_lang == args.target_lang:
        raise UserError(f"--source-lang and --target-lang are both {args.source_lang}: name two languages.")
    if args.dim % args.heads:
        raise UserError(f"--dim {args.dim} is not divisible by --heads {args.heads}: change one of them.")
    for name in OF_MADE if args.data else OF_FOLDERS:
        if getattr(args, name) is not None:
            other = "made documents" if args.data else "documents in the folder that --data names"
            raise UserError(f"--{name.replace('_', '-')} is for {other}: leave it out.")
    for name, default in DEFAULTS.items():
        if getattr(args, name) is None:
            setattr(args, name, default)
    size_flags: list[str] = []
    for side in ("encoder", "decoder") if not args.arch else ():
        size_flags += [f"--{side}-layers", str(args.layers), f"--{side}-embed-dim", str(args.dim)]
        size_flags += [f"--{side}-ffn-embed-dim", str(args.ffn_dim), f"--{side}-attention-heads", str(args.heads)]
    arch = args.arch or "transformer"
    check_architecture(arch)
    return Settings(
        _of_arguments(Text, args, dataset=dataset_of(args, MADE_SEED)),
        _of_arguments(TrainingSettings, args, arch=arch, size_flags=size_flags, train_args=train_args),
        _of_arguments(Translation, args),
    )


def _of_arguments(settings: type[Group], args: argparse.Namespace, **others: Any) -> Group:
    """Returns a group of settings whose fields are the options of the same name, but for `others`."""
    names = {field.name for field in dataclasses.fields(settings)} - set(others)
    return settings(**{name: getattr(args, name) for name in names}, **others)


def _check_average(args: argparse.Namespace) -> None:
    """Refuses a mean of more checkpoints than a training saves or keeps."""
    if args.average > args.keep_checkpoints:
        raise UserError(
            f"--average {args.average} asks for more checkpoints than --keep-checkpoints {args.keep_checkpoints} keeps."
        )
    for flag, updates in (("--updates", args.updates), ("--start-updates", args.start_updates)):
        if args.average > updates // args.validate_updates:
            raise UserError(
                f"--average {args.average} asks for more checkpoints than the {updates // args.validate_updates} that "
                f"{flag} {updates} gives with one every {args.validate_updates}: change one of them."
            )


def _check_lengths(settings: Settings, start_max_tokens: int, models: int) -> None:
    """Refuses examples that are longer than a batch, or than the positions that models are made for."""
    longest = settings.text.max_subwords
    if not 0 < longest <= models:
        raise UserError(
            f"--max-subwords {longest} must be from 1 to the last of --lengths, {models}, for which the models are "
            "made: change one of them."
        )
    for flag, positions in settings.training.longest.items():
        if positions < models:
            raise UserError(
                f"{flag} {positions} is less than the last of --lengths, {models}, for which the models are made: "
                "change one of them."
            )
    for name, tokens in (("--max-tokens", settings.training.max_tokens), ("--start-max-tokens", start_max_tokens)):
        if longest > tokens:
            raise UserError(
                f"--max-subwords {longest} is more than {name} {tokens}, so that no batch would hold the longest "
                "example: change one of them."
            )


def checkpoint_of(training: Training) -> Path:
    """Returns the checkpoint of a finished training that later trainings start from and translation uses."""
    return training.folder / "chosen.pt"
