"""What decides the models of a study, and how fairseq-train is called for each of them."""

import argparse
import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.architectures import PRESETS
from linformer_fairseq.models.config import LinformerConfig
from linformer_fairseq.modules.registry import DEFAULT_KIND
from linformer_fairseq.recipe.course import Course, run_training
from linformer_fairseq.recipe.flags import check_unchanged, parse_training, refusing
from linformer_fairseq.recipe.precision import on_cpu

from .datasets import Documents

POSITION_FLAGS = ("--max-source-positions", "--max-target-positions")
FAIRSEQ_MAX_POSITIONS = 1024  # fairseq's default for both
TASK = "document_translation"
LOG_INTERVAL = 50
_PREFIXES = {kind: prefix for prefix, kind in PRESETS.items()}


@dataclass(frozen=True)
class Text:
    """What the binarised text is made of, and how."""

    dataset: Documents
    source_lang: str
    target_lang: str
    bpe_merges: int
    """sentencepiece's subwords."""
    max_subwords: int
    """The longest example."""


@dataclass(frozen=True)
class TrainingSettings:
    """How a model is trained, whatever its attention and seed."""

    arch: str
    """That of the Transformer."""
    size_flags: list[str]
    updates: int
    max_tokens: int
    precision: str
    """One of PRECISIONS."""
    lr: float
    warmup_updates: int
    linear_decay: bool | None
    """Whether the learning rate then falls linearly to 0 at the last update, rather than with the inverse square root
    of updates; None as False."""
    dropout: float
    label_smoothing: float
    validate_updates: int
    keep_checkpoints: int
    train_args: list[str]
    """Of fairseq-train, as they are."""

    @property
    def on_cpu(self) -> bool:
        return on_cpu(self.train_args)

    @property
    def inference_precision(self) -> str:
        """The precision of translation: fp16 on a GPU after a training in fp16 or amp, else fp32."""
        return "fp16" if not self.on_cpu and self.precision in ("fp16", "amp") else "fp32"

    @property
    def longest(self) -> dict[str, int]:
        """The longest source and target that the models take, by fairseq's flags."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for flag in POSITION_FLAGS:
            parser.add_argument(flag, dest=flag, type=int, default=FAIRSEQ_MAX_POSITIONS)
        return vars(parser.parse_known_args(self.train_args)[0])


@dataclass(frozen=True)
class Translation:
    """How every model translates."""

    beam: int
    lenpen: float
    average: int
    """Translate with the mean of the last so many checkpoints; 0: with the best one."""


@dataclass(frozen=True)
class Settings:
    """Everything that is the same for all models, so that they can be compared."""

    text: Text
    training: TrainingSettings
    translation: Translation

    def as_json(self) -> dict[str, Any]:
        """Returns the settings as study.json and results.json hold them."""
        text = {name: value for name, value in vars(self.text).items() if name != "dataset"}
        # one that is not given is not stored, as by those that had no such option
        training = {name: value for name, value in vars(self.training).items() if value is not None}
        return {
            "text": {**self.text.dataset.settings(), **text},
            "training": training,
            "translation": vars(self.translation),
        }


@dataclass(frozen=True)
class Variant:
    """One kind of model."""

    name: str
    """On the command line and in results.json; its results are in a folder of this name."""
    label: str
    """In tables and plots."""
    attention: str = ""
    """The places of other attention; empty for the Transformer, which has none."""
    projection: str = "linear"
    """The kind of that attention."""
    flags: str = ""
    """Further flags of the model."""
    what: str = ""
    """An explanation for the report."""


@dataclass(frozen=True)
class Training:
    """One model of the study."""

    variant: Variant
    k: int
    """0 for the Transformer."""
    seed: int
    settings: Settings
    runs: Path
    """The folder where each variant has one."""

    @property
    def name(self) -> str:
        """What the user is told that it is."""
        return f"{self.variant.label}, seed {self.seed}"

    @property
    def out(self) -> Path:
        """The folder of its binary data and its model."""
        slug = f"{self.variant.name}-k{self.k}" if self.k else self.variant.name
        return self.runs / slug / f"seed-{self.seed}"

    @property
    def folder(self) -> Path:
        """That of the model."""
        slug = f"linformer-k{self.k}-{self.variant.attention.replace(',', '-')}" if self.k else "transformer"
        return self.out / "models" / slug

    def model_arguments(self) -> list[str]:
        """Returns the arguments that make fairseq-train build this model; all others are the same for every model."""
        training, variant = self.settings.training, self.variant
        if not self.k:
            return ["--arch", training.arch, *training.size_flags]
        prefix = _PREFIXES.get(variant.projection, _PREFIXES[DEFAULT_KIND])
        return [
            *("--arch", prefix + training.arch, *training.size_flags),
            *("--linformer-k", str(self.k), "--linformer-attention", variant.attention),
            *("--linformer-projection", variant.projection, *variant.flags.split()),
        ]


def training_of(variant: Variant, seed: int, k: int, shared: Settings, runs: Path) -> Training:
    """Returns the training of a variant with one seed; of one that is not trained, where its results are."""
    return Training(variant, k if variant.attention else 0, seed, shared, runs)


def with_arguments(training: Training, *arguments: str) -> Training:
    """Returns the training with further arguments of fairseq-train."""
    settings = training.settings
    changed = dataclasses.replace(settings.training, train_args=[*settings.training.train_args, *arguments])
    return dataclasses.replace(training, settings=dataclasses.replace(settings, training=changed))


def training_arguments(own: Training) -> list[str]:
    """Returns the arguments of fairseq-train: the same for every model but for the architecture and the folder."""
    text, training = own.settings.text, own.settings.training
    every = str(training.validate_updates)
    return [
        *(str(own.out / "bin"), "--task", TASK),
        *("--source-lang", text.source_lang, "--target-lang", text.target_lang),
        *own.model_arguments(),
        *("--share-all-embeddings", "--dropout", str(training.dropout)),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(training.label_smoothing)),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"),
        *("--lr", str(training.lr), *_schedule(training)),
        *("--warmup-updates", str(training.warmup_updates)),
        *("--max-tokens", str(training.max_tokens), "--update-freq", "1"),
        *("--required-batch-size-multiple", "1", "--num-workers", "0"),
        *("--max-epoch", "0", "--max-update", str(training.updates), "--seed", str(own.seed)),
        *("--validate-interval-updates", every, "--save-interval-updates", every),
        *("--keep-interval-updates", str(training.keep_checkpoints), "--no-epoch-checkpoints"),
        *("--save-dir", str(own.folder / "checkpoints")),
        *("--log-format", "json", "--log-interval", str(LOG_INTERVAL)),
        *(["--cpu"] if training.on_cpu and "--cpu" not in training.train_args else []),
        *training.train_args,
    ]


def _schedule(training: TrainingSettings) -> list[str]:
    """Returns the flags of what the learning rate does after its warm-up."""
    if training.linear_decay:
        return ["--lr-scheduler", "polynomial_decay", "--total-num-update", str(training.updates)]
    return ["--lr-scheduler", "inverse_sqrt"]


def train(own: Training, threads: int, jobs: int) -> None:
    """Trains a model to its end, as one of `jobs` at a time."""
    settings = own.settings.training
    course = Course(0, settings.updates, settings.precision, settings.on_cpu)
    run_training(own.name, own.folder, training_arguments(own), course, threads, jobs)


def check_architecture(arch: str) -> None:
    """Refuses a Transformer that has no counterparts with other attention."""
    if not {arch, *(prefix + arch for prefix in PRESETS)} <= set(ARCH_MODEL_REGISTRY):
        raise UserError(
            f"{arch} is not a translation Transformer of fairseq's that has a Linformer: name one such as "
            "transformer_iwslt_de_en."
        )


def check_flags(own: Training) -> None:
    """Refuses flags that fairseq-train, or the attention, would refuse hours later.

    Raises:
        UserError: naming the model.
    """
    with refusing(own.name):
        training = own.settings.training
        args = parse_training(training_arguments(own))
        without = dataclasses.replace(own.settings, training=dataclasses.replace(training, train_args=[]))
        arguments = training_arguments(dataclasses.replace(own, settings=without))
        check_unchanged(args, arguments, training.train_args, "what follows --")
        if own.k:
            config = LinformerConfig.from_namespace(args)
            for place in sorted(config.places):
                side = "encoder" if place == "encoder" else "decoder"
                length = "target" if place == "decoder" else "source"
                layers, heads = getattr(args, f"{side}_layers"), getattr(args, f"{side}_attention_heads")
                longest = training.longest[f"--max-{length}-positions"]
                build = config.attention(place, layers, heads, longest)[0]
                role = "encoder_decoder_attention" if place == "cross" else "self_attention"
                width = getattr(args, f"{side}_embed_dim")
                build(width, heads, dropout=args.attention_dropout, **{role: True})  # may miss a package
