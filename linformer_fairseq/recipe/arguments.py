"""The recipe's command line. The defaults are those of a small model on a small corpus."""

import argparse
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY

from linformer_fairseq.cli.arguments import Parser, count, counts, natural, number
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.machine import cpu_count
from linformer_fairseq.models.config import PLACES

from .prepare import check_data
from .settings import Model, Settings


@dataclass(frozen=True)
class Run:
    """What one invocation asks for; only `settings` is held still by the output folder."""

    out: Path
    settings: Settings
    models: list[Model]
    jobs: int


_rate = number(float, 0.0, 0.999, "a number from 0 to below 1")
_positive = number(float, 1e-12, 1e6, "a number above 0")
_finite = number(float, 0.0, 1e6, "a number from 0 on")


def _language(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a language code such as en")
    return text


def _places(text: str) -> str:
    """Places of attention in one order, so that "cross,encoder" is not another model."""
    places = [part.strip() for part in text.split(",")]
    if not set(places) <= set(PLACES) or len(set(places)) < len(places):
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma list of {', '.join(PLACES)}")
    return ",".join(place for place in PLACES if place in places)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be split into arguments: {error}") from None


def build_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="recipe",
        description="Train a Transformer and Linformers on the same text and report how they compare.",
        epilog="What follows -- goes to every fairseq-train as it is.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        allow_abbrev=False,
    )

    def option(*names: str, **keywords: Any) -> None:
        group.add_argument(*names, **keywords)

    group = parser.add_argument_group("text")
    option("--data", type=Path, metavar="DIR", help="train|valid|test.LANG[.gz]; without it a corpus is made")
    option("--source-lang", type=_language, default="en", help="language translated from")
    option("--target-lang", type=_language, default="de", help="language translated to")
    option("--made-train", type=count, default=14000, help="training pairs of the made corpus")
    option("--made-test", type=count, default=500, help="validation, and test, pairs of the made corpus")
    option("--bpe-merges", type=count, default=800, help="merges of the joint BPE")

    group = parser.add_argument_group("models")
    option("-k", "--k", type=counts, action="append", metavar="K[,K]", help="slots to train a Linformer with")
    option("--default-k", type=counts, default=[8, 16], metavar="K[,K]", help="when no --k is given")
    option("--attention", type=_places, action="append", metavar="PLACE[,PLACE]", help="attention to project")
    option("--default-attention", type=_places, default="encoder,cross", help="when no --attention is given")
    option("--arch", help="fairseq architecture of the baseline, instead of the four sizes below")
    option("--layers", type=count, default=3, help="layers of the encoder and of the decoder")
    option("--dim", type=count, default=128, help="model width")
    option("--heads", type=count, default=4, help="attention heads")
    option("--ffn-dim", type=count, default=256, help="width of the feed-forward layers")
    option(
        "--linformer-args",
        type=_words,
        default=[],
        metavar="'...'",
        help="further flags of the Linformers alone (write it with =)",
    )

    group = parser.add_argument_group("training")
    option("--epochs", type=count, default=4, help="passes over the training text")
    option("--max-tokens", type=count, default=1024, help="tokens in a batch")
    option("--lr", type=_positive, default=3e-3, help="highest learning rate")
    option("--warmup-updates", type=natural, default=400, help="updates up to the highest learning rate")
    option("--dropout", type=_rate, default=0.1, help="dropout")
    option("--label-smoothing", type=_rate, default=0.1, help="label smoothing")
    option("--validate-updates", type=count, default=200, help="updates between validations, each saved")
    option("--seed", type=natural, default=1, help="seed of training and of the made corpus")

    group = parser.add_argument_group("translation")
    option("--beam", type=count, default=5, help="beam width")
    option("--lenpen", type=_finite, default=1.0, help="length penalty")

    group = parser.add_argument_group("running")
    option("--out", type=Path, default=Path("results/quickstart"), help="folder for all results")
    option("--threads", type=count, default=cpu_count(), help="threads of every command")
    option("--jobs", type=count, default=1, help="trainings at a time")
    return parser


def parse(argv: Sequence[str]) -> Run:
    """The run that a command line asks for, checked as far as it can be without doing anything."""
    own, extra = list(argv), []
    if "--" in own:
        cut = own.index("--")
        own, extra = own[:cut], own[cut + 1 :]
    args = build_parser().parse_args(own)
    if args.source_lang == args.target_lang:
        raise UserError(f"--source-lang and --target-lang are both {args.source_lang}: name two languages.")
    if args.dim % args.heads:
        raise UserError(f"--dim {args.dim} is not divisible by --heads {args.heads}: change one of them.")
    if args.arch and not {args.arch, f"linformer_{args.arch}"} <= set(ARCH_MODEL_REGISTRY):
        raise UserError(
            f"--arch {args.arch} is not a translation Transformer of fairseq's that has a Linformer: name one such "
            "as transformer_iwslt_de_en."
        )
    out = args.out.expanduser().resolve()
    return Run(out, _settings(args, extra), _models(args), args.jobs)


def _settings(args: argparse.Namespace, extra: list[str]) -> Settings:
    sizes = {
        "layers": args.layers,
        "embed-dim": args.dim,
        "ffn-embed-dim": args.ffn_dim,
        "attention-heads": args.heads,
    }
    size_flags = [
        part for side in ("encoder", "decoder") for name, n in sizes.items() for part in (f"--{side}-{name}", str(n))
    ]
    return Settings(
        data=_data(args),
        source_lang=args.source_lang,
        target_lang=args.target_lang,
        bpe_merges=args.bpe_merges,
        arch=args.arch or "transformer",
        size_flags=[] if args.arch else size_flags,
        epochs=args.epochs,
        max_tokens=args.max_tokens,
        lr=args.lr,
        warmup_updates=args.warmup_updates,
        dropout=args.dropout,
        label_smoothing=args.label_smoothing,
        validate_updates=args.validate_updates,
        seed=args.seed,
        beam=args.beam,
        lenpen=args.lenpen,
        threads=args.threads,
        linformer_args=args.linformer_args,
        train_args=extra,
    )


def _data(args: argparse.Namespace) -> dict[str, Any]:
    if args.data is not None:
        folder = args.data.expanduser().resolve()
        return {"folder": str(folder), "sha256": check_data(folder, args.source_lang, args.target_lang)}
    if {args.source_lang, args.target_lang} != {"en", "de"}:
        raise UserError("The made corpus is in en and de only: name your own text with --data.")
    return {"made": {"train": args.made_train, "valid": args.made_test, "test": args.made_test}}


def _models(args: argparse.Namespace) -> list[Model]:
    """The baseline, then every k for every choice of attention, each once."""
    ks = [k for group in args.k for k in group] if args.k else args.default_k
    attentions = args.attention or [args.default_attention]
    return list(dict.fromkeys([Model(), *(Model(k, places) for places in attentions for k in ks)]))
