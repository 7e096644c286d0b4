"""The study's command line: its own options, and those of the recipe that all models share."""

import argparse
import dataclasses
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.arguments import (
    Parser,
    ascending,
    count,
    cut_at_dashes,
    names_of,
    natural,
    paths,
    positive,
    rate,
)
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.quality.variants import Training
from linformer_fairseq.recipe import arguments as recipe
from linformer_fairseq.recipe.datasets import OF_DOCUMENTS
from linformer_fairseq.recipe.settings import POSITION_FLAGS, Settings

from .arms import ARMS, CONVERTED, SEVERAL_SEEDS, START, TRANSFORMER, started_from, training_of, trainings

DEFAULTS = shlex.split(
    "--bpe sentencepiece --bpe-merges 8000 --max-subwords 2048 --layers 3 --dim 256 --ffn-dim 1024 --epochs 0 "
    "--updates 3000 --max-tokens 4096 --lr 5e-4 --warmup-updates 200 --dropout 0.3 --beam 4 --validate-updates 500 "
    "--keep-checkpoints 3 --average 3 --precision fp32 --threads 1"
)
"""The recipe's options that have another default here."""
SET_HERE = {
    "--seed": "use --seeds",
    "--model": "use --arms",
    "--attention": "use --arms",
    "--projection": "use --arms",
    "--linformer-args": "use --arms",
    "--default-k": "use --k",
    "--epochs": "use --updates",
    "--exact-below": "leave it out",
}
"""The recipe's options that the study sets for every model, and what to do instead."""
WITHOUT_EFFECT = (
    "--length-tokens",
    "--length-repeats",
    "--length-k",
    "--length-training",
    "--max-ratio",
    "--default-attention",
    "--processes",
)
OF_FOLDERS, OF_MADE = ("--training-files",), ("--made-train", "--made-test")
"""Options of a text in a folder, and of one that is made on the spot."""


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


class _StudyParser(Parser):
    """A parser of the study's own options, whose help has those of the recipe too."""

    def format_help(self) -> str:
        whole = _add_options(Parser(prog=self.prog, parents=[_of_the_recipe()], conflict_handler="resolve"))
        whole.description, whole.epilog = self.description, self.epilog
        return whole.format_help()


def _of_the_recipe() -> argparse.ArgumentParser:
    """Returns a parser with the options that the study leaves to the recipe, with its defaults."""
    parser = recipe.build_parser(OF_DOCUMENTS)
    defaults = vars(parser.parse_args(DEFAULTS))
    set_here = (action.dest for action in parser._actions if {*action.option_strings} & {*DEFAULTS})
    parser.set_defaults(**{name: defaults[name] for name in set_here})
    for action in parser._actions:
        if {*action.option_strings} & {*SET_HERE, *WITHOUT_EFFECT} or not action.option_strings:
            action.help = argparse.SUPPRESS
    return parser


def build_parser() -> Parser:
    return _add_options(
        _StudyParser(
            prog="documents",
            description="Train a Transformer on a few sentences at a time, go on from there on documents with each "
            "kind of attention, and compare the translations of whole documents.",
            epilog="--max-subwords is the longest example. What follows -- goes to every fairseq-train as it is.",
        )
    )


def _add_options(parser: Parser) -> Parser:
    """Returns the parser with the study's own options."""
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
    return parser


def parse(argv: Sequence[str]) -> Study:
    """Returns the study that a command line asks for, checked as far as it can be without doing anything."""
    before, train_args = cut_at_dashes(argv)
    own, others = build_parser().parse_known_args(before)
    _check_given({argument.partition("=")[0] for argument in others})
    positions = [part for flag in POSITION_FLAGS for part in (flag, str(own.lengths[-1]))]
    run = recipe.parse([*DEFAULTS, "--out", str(own.out), *others, "--", *positions, *train_args], OF_DOCUMENTS)
    if own.report_only and own.merge:
        raise UserError("--report-only writes the report of what is stored: leave out --merge, or --report-only.")
    if run.step != "compare":
        raise UserError(f"{run.step} is a step of the recipe's: the study always does all of them.")
    settings, start_max_tokens = run.settings, own.start_max_tokens or run.settings.training.max_tokens
    _check_lengths(settings, start_max_tokens, own.lengths[-1])
    average, saves = settings.translation.average, own.start_updates // settings.training.validate_updates
    if average > saves:
        raise UserError(
            f"--average {average} asks for more checkpoints than the {saves} that --start-updates {own.start_updates} "
            f"gives with one every {settings.training.validate_updates}: change one of them."
        )
    on_sentences = dataclasses.replace(
        settings.training,
        updates=own.start_updates,
        lr=own.start_lr,
        warmup_updates=own.start_warmup_updates,
        dropout=own.start_dropout,
        max_tokens=start_max_tokens,
    )
    runs = run.out / "runs"
    start = dataclasses.replace(settings, training=on_sentences)
    every = list(trainings(own.arms, own.seeds, own.k, settings, runs))
    starts = {training.seed: training_of(START, training.seed, own.k, start, runs) for training in every}
    return Study(
        command=shlex.join(["python", "-m", "linformer_fairseq.documents", *argv]),
        out=run.out,
        settings=settings,
        start_resolutions=own.start_resolutions,
        resolutions=own.resolutions,
        lengths=own.lengths,
        k=own.k,
        starts=starts,
        trainings=[started_from(training, checkpoint_of(starts[training.seed])) for training in every],
        test=own.test,
        batch_tokens=own.batch_tokens,
        free=own.free,
        costs=own.costs,
        repeats=own.cost_repeats,
        merge=own.merge or (),
        report_only=bool(own.report_only),
        threads=run.threads,
        jobs=run.jobs,
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


def _check_given(given: set[str]) -> None:
    """Refuses the names of options that the study does not take."""
    known = recipe.build_parser(OF_DOCUMENTS)._option_string_actions
    for name in sorted(given):
        if re.match("--?[a-z]", name) and name not in known:
            raise UserError(f"{name} is not an option of the study of documents (see --help).")
        if name in SET_HERE:
            raise UserError(f"{name} is set by the study: {SET_HERE[name]}.")
        if name in WITHOUT_EFFECT:
            raise UserError(f"{name} has no effect in the study of documents: leave it out.")
        if name in (OF_MADE if "--data" in given else OF_FOLDERS):
            other = "made documents" if name in OF_MADE else "documents in the folder that --data names"
            raise UserError(f"{name} is for {other}: leave it out.")


def checkpoint_of(training: Training) -> Path:
    """Returns the checkpoint of a finished training that later trainings start from and translation uses."""
    return training.folder / "chosen.pt"
