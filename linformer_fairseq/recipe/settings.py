"""The settings that all models of an output folder share, and the models."""

import argparse
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.models.architectures import PRESETS
from linformer_fairseq.modules import KINDS, LinformerMultiheadAttention
from linformer_fairseq.modules.registry import DEFAULT_KIND, flag_of

from .datasets.base import Dataset
from .steps import locked, remove_folder

FILE_NAME = "settings.json"
SCORES = "scores.json"  # in the folder of a split that a model has translated
DONE = "train.json"  # in the folder of a model that has been trained to its end
POSITION_FLAGS = ("--max-source-positions", "--max-target-positions")
FAIRSEQ_MAX_POSITIONS = 1024  # fairseq's default for both
PREPARED_FOLDERS = ("bin", "bpe", "tok", "raw")  # each is made of the next
SENTENCEPIECE = "sentencepiece"
SUBWORD_NMT = "subword-nmt"


PREFIXES = {kind: prefix for prefix, kind in PRESETS.items()}
"""How the names of a kind's architectures begin; kinds without architectures use those of `DEFAULT_KIND`."""
LINFORMER = "Linformer"
REPORT_NAMES = {"linear": LINFORMER, "two-level": "Two levels"}
"""What reports call a kind. Further kinds of Linformer's class are Linformer too, with the kind in brackets; all others
are called by their own name."""


@dataclass(frozen=True)
class Text:
    """What the binarised text is made of, and how."""

    dataset: Dataset
    source_lang: str
    target_lang: str
    bpe: str
    """SUBWORD_NMT on Moses tokens, or SENTENCEPIECE on the text as it is."""
    bpe_merges: int
    normalise_punctuation: bool
    aggressive_hyphens: bool
    max_subwords: int
    """Training pairs with a longer side are left out; 0: none are."""
    max_ratio: float
    """Training pairs are left out where a side has more than this many times the subwords of the other; 0: none are."""


def on_cpu(train_args: Sequence[str]) -> bool:
    """Returns whether fairseq-train runs without a GPU: told so by these arguments, or as there is none."""
    return "--cpu" in train_args or not torch.cuda.is_available()


@dataclass(frozen=True)
class Training:
    """How every model is trained."""

    arch: str
    size_flags: list[str]
    epochs: int
    """0: until `updates` are done."""
    updates: int
    """0: until `epochs` are done."""
    max_tokens: int
    update_batches: int
    """Batches of `max_tokens` in an update, whatever the number of GPUs."""
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
    seed: int
    linformer_args: list[str]
    exact_below: int | None
    """Models with two levels attend to shorter texts in full; None for the default of the attention."""
    train_args: list[str]

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
    """How every model translates the test set."""

    beam: int
    lenpen: float
    average: int
    """Translate with the mean of the last so many checkpoints; 0: with the best one."""


@dataclass(frozen=True)
class Settings:
    """Everything that is the same for all rows of a report, so that they can be compared."""

    text: Text
    training: Training
    translation: Translation

    def as_json(self) -> dict[str, Any]:
        """Returns the settings as settings.json and results.json hold them."""
        text = {name: value for name, value in vars(self.text).items() if name != "dataset"}
        # one that is not given is not stored, as by those that had no such option
        training = {name: value for name, value in vars(self.training).items() if value is not None}
        return {
            "text": {"data": self.text.dataset.settings(), **text},
            "training": training,
            "translation": vars(self.translation),
        }


def fixed_precision(out: Path) -> str | None:
    """Returns the precision of the models in a folder; None before the first checkpoint is saved."""
    stored = _stored(out)
    return stored["training"]["precision"] if stored and _has_models(out) else None


def _stored(out: Path) -> dict[str, Any] | None:
    """Returns the settings that the results in a folder were made with; None where there are none of this recipe."""
    path = out / FILE_NAME
    stored = read_json(path) if path.exists() else None
    return stored if isinstance(stored, dict) and {"text", "training", "translation"} <= set(stored) else None


def _has_models(out: Path) -> bool:
    """Returns whether a folder has a model; a finished one may be without its checkpoints, removed to save space."""
    models = out / "models"
    return any(models.glob("*/checkpoints/*.pt")) or any(models.glob(f"*/{DONE}"))


def store_settings(settings: Settings, out: Path, prepares: bool) -> None:
    """Stores the settings with the results, and refuses to mix results of different settings.

    Settings can no longer change once a checkpoint is saved, those of the translation once a set is translated. Text
    that was prepared with other settings is removed by a command that `prepares` it, and refused by any other. A folder
    that holds anything but results is refused, as nothing in it is ours to replace.
    """
    now = settings.as_json()
    before = _stored(out)
    if before is None and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise UserError(f"{out} holds other files than this recipe's: name a new or an empty folder with --out.")
    if before is not None and before != now:
        models = out / "models"
        if _has_models(out):
            for group in ("text", "training"):
                _refuse_change(before, now, group, out, "give the same, or use another --out")
        if any(models.glob(f"*/*/{SCORES}")):
            remedy = f"use another --out, or remove the folders of {models}/*/ that hold {SCORES}"
            _refuse_change(before, now, "translation", out, remedy)
        if not prepares and any((out / folder).is_dir() for folder in PREPARED_FOLDERS):
            _refuse_change(before, now, "text", out, "give the same, or prepare the text with it first (prepare.sh)")
        same_text = before["text"] == now["text"]
        if not same_text or before["training"] != now["training"]:
            for model in models.glob("*/"):
                with locked(model, patience=0):  # a training may be under way that has saved nothing yet
                    shutil.rmtree(model)
        if not same_text:
            for folder in PREPARED_FOLDERS:
                remove_folder(out / folder)
    if before != now:
        write_json(out / FILE_NAME, now)


def _refuse_change(before: Mapping[str, Any], now: Mapping[str, Any], group: str, out: Path, remedy: str) -> None:
    for name in dict.fromkeys([*now[group], *before[group]]):
        value, stored = now[group].get(name), before[group].get(name)
        if stored != value:
            raise UserError(
                f"{out} was made with {name} = {stored!r}, not {value!r}: all rows of a report need "
                f"the same settings, so {remedy}."
            )


@dataclass(frozen=True)
class Model:
    """One row of the report: the Transformer (k = 0), or a model with other attention."""

    k: int = 0
    attention: str = ""
    projection: str = ""
    """The kind of that attention, as flag and in the name of the folder; empty where further flags say it."""
    slots: str = ""
    """What `--linformer-k` is given where that is not k, as in 12,8,4."""
    kind: str = ""
    """The kind that further flags say."""

    @property
    def name(self) -> str:
        return f"{self._family} k={self.k} ({self._where})" if self.k else "Transformer"

    @property
    def what(self) -> str:
        """The model's name without k."""
        return f"{self._family} ({self._where})" if self.k else "Transformer"

    @property
    def _family(self) -> str:
        kind = self.projection or self.kind
        registered = KINDS.get(kind)
        is_linformer = registered is None or issubclass(registered.attention, LinformerMultiheadAttention)
        return REPORT_NAMES.get(kind, LINFORMER if is_linformer else kind)

    @property
    def _where(self) -> str:
        kind = "" if self.projection in (*REPORT_NAMES, self._family) else self.projection
        return "; ".join(filter(None, (self.attention, kind)))

    @property
    def slug(self) -> str:
        """The model's folder."""
        if not self.k:
            return "transformer"
        return "-".join(filter(None, (f"linformer-k{self.k}", self.attention.replace(",", "-"), self.projection)))

    def architecture(self, baseline: str) -> str:
        """Returns fairseq's name for this attention in the Transformer of the architecture `baseline`."""
        return PREFIXES.get(self.projection or self.kind, PREFIXES[DEFAULT_KIND]) + baseline if self.k else baseline

    def arguments(self, training: Training) -> list[str]:
        """Returns the arguments that make fairseq-train build this model; all others are the same for every model."""
        architecture = ["--arch", self.architecture(training.arch), *training.size_flags]
        if not self.k:
            return architecture
        return [
            *architecture,
            *("--linformer-k", self.slots or str(self.k), "--linformer-attention", self.attention),
            *(("--linformer-projection", self.projection) if self.projection else ()),
            *self._exactness(training),
            *training.linformer_args,
        ]

    def _exactness(self, training: Training) -> list[str]:
        """Returns the flag that says which texts are short, for a kind of attention that has it."""
        kind = KINDS[self.projection or self.kind or DEFAULT_KIND]
        option = "linformer_exact_below"
        if training.exact_below is None or not any(field.name == option for field in fields(kind.options)):
            return []
        return [flag_of(option), str(training.exact_below)]
