"""The study's command line: its own options, and those of the recipe that all models share."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from linformer_fairseq.cli.arguments import Parser, counts, cut_at_dashes, names_of
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import arguments as recipe
from linformer_fairseq.recipe.settings import Settings

from .variants import CAUSAL_WIDTH, MAIN, VARIANTS, Training

DEFAULTS = shlex.split(
    "--bpe-merges 6000 --layers 3 --epochs 9 --max-tokens 1024 --lr 1.5e-3 --warmup-updates 1000 --dropout 0.2 "
    "--beam 4 --validate-updates 250 --keep-checkpoints 5 --average 5 --precision fast-fp32 --threads 1"
)
"""The recipe's options that have another default here: a small model on some 30,000 short sentences."""


@dataclass(frozen=True)
class Study:
    """What one invocation asks for."""

    command: str
    out: Path
    settings: Settings
    """Shared by all trainings; each has its own seed and Linformer flags."""
    ks: list[int]
    trainings: list[Training]
    """Seed by seed, so that the first seed of every variant is known early."""
    test: bool
    """Whether to translate the test set too."""
    report_only: bool
    """Whether to do nothing but write the report of the results that are stored in `out`."""
    threads: int
    jobs: int


def build_parser() -> Parser:
    parser = Parser(
        prog="quality",
        description="Train variants of the model with several seeds and compare their translations by length.",
        epilog="All other options are the recipe's (python -m linformer_fairseq.recipe --help), --data for one; here "
        f"their defaults are {shlex.join(DEFAULTS)}. Variants with two levels have them on short sentences too "
        f"(--linformer-exact-below 0); in the decoder of two-level-all a slot has {CAUSAL_WIDTH} tokens at any "
        "k, and three slots are open (docs/quality.md).",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder for all results")
    parser.add_argument(
        "--variants",
        type=names_of(list(VARIANTS), "a variant"),
        default=",".join(MAIN),
        metavar="NAME[,NAME]",
        help="what to train",
    )
    parser.add_argument("-k", "--k", type=counts, default="8,16", metavar="K[,K]", help="slots of each variant")
    parser.add_argument("--seeds", type=counts, default="1,2,3", metavar="S[,S]", help="a training for each")
    parser.add_argument(
        "--test", action="store_true", help="translate the test set too, once everything has been decided"
    )
    parser.add_argument(
        "--report-only",
        action="store_true",
        help="write report.md and the plots from DIR/results.json, train nothing",
    )
    return parser


def parse(argv: Sequence[str]) -> Study:
    """Returns the study that a command line asks for, checked as far as it can be without doing anything."""
    before, train_args = cut_at_dashes(argv)
    own, others = build_parser().parse_known_args(before)
    given = {argument.partition("=")[0] for argument in others}
    for name in ("--seed", "--model", "--attention", "--projection", "--linformer-args"):
        if name in given:
            raise UserError(f"{name} is set by the study: use --seeds and --variants.")
    run = recipe.parse([*DEFAULTS, "--out", str(own.out), *others, "--", *train_args])
    if run.step != "compare":
        raise UserError(f"{run.step} is a step of the recipe's: the study always does all of them.")
    ks, seeds = (list(dict.fromkeys(given)) for given in (own.k, own.seeds))
    return Study(
        command=shlex.join(["python", "-m", "linformer_fairseq.quality", *argv]),
        out=run.out,
        settings=run.settings,
        ks=ks,
        trainings=[
            training
            for seed in seeds
            for name in own.variants
            for training in VARIANTS[name].trainings(ks, seed, run.settings, run.out / "runs")
        ],
        test=own.test,
        report_only=own.report_only,
        threads=run.threads,
        jobs=run.jobs,
    )
