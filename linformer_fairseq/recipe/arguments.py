"""The recipe's command line. The defaults are those of a small model on a small corpus."""

import argparse
import dataclasses
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from fairseq.models import ARCH_MODEL_REGISTRY

from linformer_fairseq.cli.arguments import Parser, count, counts, cut_at_dashes, names, natural, number, positive, rate
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.machine import cpu_count
from linformer_fairseq.models.architectures import PRESETS
from linformer_fairseq.models.config import PLACES
from linformer_fairseq.modules.registry import CAUSAL_KINDS, KINDS, encoder_only

from . import datasets
from .datasets.base import Dataset
from .length_timing import Lengths
from .precision import PRECISIONS
from .settings import (
    SENTENCEPIECE,
    SUBWORD_NMT,
    Model,
    Settings,
    Text,
    Training,
    Translation,
    fixed_precision,
)

STEPS = ("prepare", "train", "evaluate", "compare")
AUTO = "auto"
Group = TypeVar("Group", Text, Training, Translation)


@dataclass(frozen=True)
class Run:
    """The run that a command line asks for; all results in an output folder share its `settings`, and nothing else."""

    step: str
    out: Path
    settings: Settings
    models: list[Model]
    threads: int
    jobs: int
    processes: int | None
    """Processes that train one model together on this machine; None for one on every GPU."""
    lengths: Lengths | None
    """Sentence lengths to time the models at; None for none."""


_finite = number(float, 0.0, 1e6, "a number from 0 on")


def _language(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z]{2,8}([-_][A-Za-z0-9]+)*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a language code such as en")
    return text


def _several(text: str, known: Iterable[str]) -> list[str]:
    parts = names(text)
    if not set(parts) <= set(known):
        raise argparse.ArgumentTypeError(f"{text!r} is not a comma list of {', '.join(known)}")
    return parts


def _places(text: str) -> str:
    """Returns places of attention in a fixed order, so that "cross,encoder" is not another model."""
    return ",".join(sorted(_several(text, PLACES), key=list(PLACES).index))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be split into arguments: {error}") from None


def build_parser(known: Sequence[type[Dataset]] | None = None) -> argparse.ArgumentParser:
    """Returns the parser, with the options of the known datasets, those of sentences unless they are given."""
    parser = Parser(
        prog="recipe",
        description="Train a Transformer, Linformers and models of two levels on one text and report how they compare.",
        epilog="What follows -- goes to every fairseq-train as it is.",
    )

    def option(*names: str, **keywords: Any) -> None:
        group.add_argument(*names, **keywords)

    switch: dict[str, Any] = {"action": argparse.BooleanOptionalAction, "default": False}

    group = parser
    option("step", nargs="?", choices=STEPS, default="compare", help="step to run; compare runs all of them")

    group = parser.add_argument_group("text")
    for dataset in known or datasets.DATASETS:
        dataset.add_options(group)
    option("--source-lang", type=_language, default="en", help="language translated from")
    option("--target-lang", type=_language, default="de", help="language translated to")
    option("--bpe", choices=(SUBWORD_NMT, SENTENCEPIECE), default=SUBWORD_NMT, help="what makes subwords")
    option("--bpe-merges", type=count, default=800, help="merges of the joint BPE, or sentencepiece's subwords")
    option("--normalise-punctuation", **switch, help="plain quotes and dashes, no control characters (Moses)")
    option("--aggressive-hyphens", **switch, help="split words at hyphens (Moses)")
    option("--max-subwords", type=natural, default=0, help="longest side of a training pair; 0: any")
    option("--max-ratio", type=_finite, default=0.0, help="most that one side may be longer than the other; 0: any")

    group = parser.add_argument_group("models")
    option(
        "--model",
        metavar="ARCH",
        help="train or evaluate only this architecture: a Transformer's name, or linformer_ or two_level_ before it",
    )
    option("-k", "--k", type=counts, action="append", metavar="K[,K]", help="slots to train models with")
    option("--default-k", type=counts, default=[8, 16], metavar="K[,K]", help="when no --k is given")
    option("--attention", type=_places, action="append", metavar="PLACE[,PLACE]", help="attention to project")
    option("--default-attention", type=_places, default="encoder,cross", help="when no --attention is given")
    option(
        "--projection",
        type=partial(_several, known=KINDS),
        metavar="KIND[,KIND]",
        help=f"a model of each kind for every k, of {', '.join(KINDS)} (default: {','.join(PRESETS.values())}, as a "
        "comparison should show both Linformer and two levels)",
    )
    option("--arch", help="fairseq architecture of the baseline, instead of the four sizes below")
    option("--layers", type=count, default=2, help="layers of the encoder and of the decoder")
    option("--dim", type=count, default=128, help="model width")
    option("--heads", type=count, default=4, help="attention heads")
    option("--ffn-dim", type=count, default=256, help="width of the feed-forward layers")
    option(
        "--linformer-args",
        type=_words,
        default=[],
        metavar="'...'",
        help="further flags of all models but the Transformer (write it with =)",
    )

    option(
        "--exact-below",
        type=natural,
        metavar="N",
        help="two levels: shorter texts get full attention (default: as the attention has it, where k is not studied; "
        "0 makes k count on sentences too)",
    )

    group = parser.add_argument_group("training")
    option("--epochs", type=natural, default=4, help="passes over the training text; 0: until --updates")
    option("--updates", type=natural, default=0, help="updates; 0: until --epochs")
    option("--max-tokens", type=count, default=1024, help="tokens in a batch")
    option("--update-batches", type=count, default=1, help="batches in an update, on all GPUs together")
    option("--precision", choices=(AUTO, *PRECISIONS), default=AUTO, help="auto: as before, else fp16 on a GPU or fp32")
    option("--lr", type=positive, default=3e-3, help="highest learning rate")
    option("--warmup-updates", type=natural, default=100, help="updates up to the highest learning rate")
    option(
        "--linear-decay",
        action="store_const",
        const=True,
        help="let the learning rate fall linearly to 0 at the last of --updates, not with the inverse square root",
    )
    option("--dropout", type=rate, default=0.1, help="dropout")
    option("--label-smoothing", type=rate, default=0.1, help="label smoothing")
    option("--validate-updates", type=count, default=200, help="updates between validations, each saved")
    option("--keep-checkpoints", type=count, default=1, help="how many of these saves to keep")
    option("--seed", type=natural, default=1, help="seed of training and of the synthetic corpus")

    group = parser.add_argument_group("translation")
    option("--beam", type=count, default=5, help="beam width")
    option("--lenpen", type=_finite, default=1.0, help="length penalty")
    option("--average", type=natural, default=0, help="translate with the mean of so many last saves; 0: the best one")

    group = parser.add_argument_group("time against length")
    option("--length-tokens", type=natural, default=0, help="tokens in every batch, short or long; 0: no such study")
    option("--lengths", type=counts, default=[256, 512, 1024, 2048, 4096, 8192, 16384], help="tokens in a sentence")
    option("--length-repeats", type=count, default=5, help="runs that count")
    option(
        "--length-k",
        type=counts,
        default=[],
        metavar="K[,K]",
        help="also time a model of every kind with this k in all attention, as its architecture has it, untrained",
    )
    option("--length-training", **switch, help="time training steps as well as forward passes")

    group = parser.add_argument_group("running")
    option("--out", type=Path, default=Path("results/quickstart"), help="folder for all results")
    option(
        "--threads",
        type=count,
        default=cpu_count(),
        help="threads of every command; of several trainings at a time no more than their share of the cores",
    )
    option("--jobs", type=count, default=1, help="trainings at a time")
    option("--processes", type=count, help="processes that train a model together here (default: one on every GPU)")
    return parser


def parse(argv: Sequence[str], known: Sequence[type[Dataset]] | None = None) -> Run:
    """Returns the run that a command line asks for, or raises UserError where it cannot be done.

    Args:
        known: the datasets that it may name, those of sentences unless they are given; the last one is taken where it
            names none.
    """
    own, train_args = cut_at_dashes(argv)
    args = build_parser(known).parse_args(own)
    _check(args)
    models = _models(args)
    out = args.out.expanduser().resolve()
    text = _of_arguments(Text, args, dataset=datasets.from_arguments(args, known or datasets.DATASETS))
    training = _training(args, train_args, out)
    return Run(
        step=args.step,
        out=out,
        settings=Settings(text, training, _of_arguments(Translation, args)),
        models=models,
        threads=args.threads,
        jobs=args.jobs,
        processes=args.processes,
        lengths=_lengths(args),
    )


def _check(args: argparse.Namespace) -> None:
    """Refuses options that contradict each other."""
    if args.source_lang == args.target_lang:
        raise UserError(f"--source-lang and --target-lang are both {args.source_lang}: name two languages.")
    if args.dim % args.heads:
        raise UserError(f"--dim {args.dim} is not divisible by --heads {args.heads}: change one of them.")
    if not args.epochs and not args.updates:
        raise UserError("--epochs and --updates are both 0, so a training would never end: set one of them.")
    if args.linear_decay and not args.updates:
        raise UserError("--linear-decay ends with the last of --updates: give their number, and --epochs 0.")
    if args.average > args.keep_checkpoints:
        raise UserError(
            f"--average {args.average} asks for more checkpoints than --keep-checkpoints {args.keep_checkpoints} keeps."
        )
    if args.updates and args.average > args.updates // args.validate_updates:
        raise UserError(
            f"--average {args.average} asks for more checkpoints than {args.updates:,} updates give with one every "
            f"{args.validate_updates:,}: change --average or --validate-updates."
        )
    baseline = _baseline(args)
    if baseline and not {baseline, *(prefix + baseline for prefix in PRESETS)} <= set(ARCH_MODEL_REGISTRY):
        raise UserError(
            f"{baseline} is not a translation Transformer of fairseq's that has a Linformer: name one such "
            "as transformer_iwslt_de_en."
        )


def _lengths(args: argparse.Namespace) -> Lengths | None:
    if not args.length_tokens:
        return None
    if min(args.lengths) > args.length_tokens:
        raise UserError(
            f"--length-tokens {args.length_tokens} is less than any of --lengths: give {min(args.lengths)} or more, "
            "or 0 for no such study."
        )
    longest = max(length for length in args.lengths if length <= args.length_tokens)
    if max(args.length_k, default=0) > longest:
        raise UserError(f"--length-k {max(args.length_k)} is more than the {longest:,} tokens of the longest sentence.")
    return Lengths(args.length_tokens, args.lengths, args.length_repeats, args.length_k, args.length_training)


def _of_arguments(settings: type[Group], args: argparse.Namespace, **others: Any) -> Group:
    """Returns a group of settings whose fields are the options of the same name, but for `others`."""
    names = {field.name for field in dataclasses.fields(settings)} - set(others)
    return settings(**{name: getattr(args, name) for name in names}, **others)


def _baseline(args: argparse.Namespace) -> str | None:
    """Returns the Transformer's architecture; None where it is given by its sizes."""
    if not args.model:
        return args.arch
    return next((args.model.removeprefix(prefix) for prefix in PRESETS if args.model.startswith(prefix)), args.model)


def _training(args: argparse.Namespace, train_args: list[str], out: Path) -> Training:
    baseline = _baseline(args)
    size_flags = []
    for side in ("encoder", "decoder") if not baseline else ():
        size_flags += [f"--{side}-layers", str(args.layers), f"--{side}-embed-dim", str(args.dim)]
        size_flags += [f"--{side}-ffn-embed-dim", str(args.ffn_dim), f"--{side}-attention-heads", str(args.heads)]
    arch = baseline or "transformer"
    training = _of_arguments(Training, args, arch=arch, size_flags=size_flags, train_args=train_args)
    if training.precision == AUTO:
        return dataclasses.replace(training, precision=fixed_precision(out) or ("fp32" if training.on_cpu else "fp16"))
    return training


def _kinds(args: argparse.Namespace, places: str) -> list[str]:
    """Returns the kinds of attention to use at `places`; the decoder's own has only some of them."""
    preset = [kind for prefix, kind in PRESETS.items() if (args.model or "").startswith(prefix)]
    named = args.projection or preset
    kinds = named or list(PRESETS.values())
    elsewhere = [kind for kind in kinds if KINDS[kind].encoder_only and places != "encoder"]
    if elsewhere:
        raise UserError(f"{encoder_only(elsewhere[0], '--attention')}.")
    if places != "decoder":
        return kinds
    causal = [kind for kind in kinds if kind in CAUSAL_KINDS]
    if named and causal != kinds:
        without = ", ".join(kind for kind in kinds if kind not in CAUSAL_KINDS)
        raise UserError(
            f"Without a causal form, {without} cannot be the kind of --attention decoder alone: use --projection "
            f"{','.join(CAUSAL_KINDS)}, or name another place as well."
        )
    return causal


def _models(args: argparse.Namespace) -> list[Model]:
    """Returns the baseline, then a model for every attention, kind and k, each once; --model leaves some out."""
    ks = [k for group in args.k for k in group] if args.k else args.default_k
    attentions = args.attention or [args.default_attention]
    models = [Model(), *(Model(k, places, kind) for places in attentions for kind in _kinds(args, places) for k in ks)]
    models = list(dict.fromkeys(models))
    if not args.model:
        return models
    baseline = _baseline(args)
    if args.model == baseline and (args.k or args.attention):
        others = " or ".join(prefix + baseline for prefix in PRESETS)
        raise UserError(
            f"{baseline} is the Transformer, for which --k and --attention mean nothing: name {others}, or leave "
            "them out."
        )
    asked = [model for model in models if model.architecture(baseline) == args.model]
    if not asked:
        raise UserError(
            f"{args.model} is of no kind that --projection {','.join(args.projection)} names: leave --projection out, "
            f"or name {models[1].architecture(baseline)}."
        )
    return asked
