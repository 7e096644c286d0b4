"""The families of models that are converted: what of fairseq's is read, and what of this package's is written."""

import shlex
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY

from linformer_fairseq.checkpoints import model_settings, plain_cfg
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import (
    PREFIXES,
    AttentionConfig,
    default_flags,
)
from linformer_fairseq.models.loading import is_convolution, projection_weights
from linformer_fairseq.modules.registry import DEFAULT_KIND, flag_of

CONVOLUTION, MASKING = "linformer_value_convolution", "linformer_mask_empty_slots"


@dataclass(frozen=True)
class Family:
    """Models that fairseq and this package both have, with another attention."""

    name: str
    """What one of them is called in a sentence."""
    base: str
    """fairseq's name of its model."""
    places: tuple[str, ...]
    """Where it has attention."""

    @property
    def model(self) -> str:
        """This package's name of its model."""
        return f"linformer_{self.base}"

    def architecture(self, arch: str, kind: str) -> str:
        """Returns the architecture of a converted model, for fairseq's and the new kind of attention."""
        prefixes = {own: prefix for prefix, own in PREFIXES.items()}
        prefix = prefixes.get(kind, prefixes[DEFAULT_KIND])
        arch = next((arch.removeprefix(own) for own in PREFIXES if arch.startswith(own)), arch)
        return prefix + arch if prefix + arch in ARCH_MODEL_REGISTRY else prefix + self.base

    def flags(self, config: AttentionConfig) -> str:
        """Returns the flags by which fairseq-train builds this attention, with any architecture of this family."""
        kind = config.linformer_projection
        words = ["--linformer-projection", kind]
        for name, default in default_flags(kind).items():
            value = getattr(config, name)
            if str(value) != str(default):
                words += [flag_of(name)] if value is True else [flag_of(name), str(value)]
        return shlex.join(words)

    def kept(self, settings: Namespace) -> dict[str, Any]:
        """Returns the flags of what a model has learnt beside its attention, which stays unless told otherwise."""
        width = getattr(settings, CONVOLUTION, 0)
        return {CONVOLUTION: width} if width else {}

    def config(self, given: Mapping[str, Any]) -> AttentionConfig:
        """Returns the attention that these flags ask for; empty slots of learned E and F are masked, with which it can
        start as full attention of up to k tokens.

        Raises:
            UserError: a flag that other families have, or flags that do not go together.
        """
        flags = default_flags(given["linformer_projection"])
        for name in sorted(given.keys() - flags.keys()):
            raise UserError(f"{flag_of(name)} is not for {self.name}s: leave it out.")
        try:
            config = AttentionConfig.from_namespace(Namespace(**{**flags, **given})).in_model(self.places)
        except ValueError as error:
            raise UserError(f"{error}.") from None
        if MASKING in config.used_options:
            setattr(config, MASKING, True)
        return config


TRANSLATION = Family("translation model", "transformer", ("encoder", "cross", "decoder"))
LANGUAGE_MODEL = Family("language model", "transformer_lm", ("decoder",))
MASKED_LANGUAGE_MODEL = Family("masked language model", "roberta", ("encoder",))
FAMILIES = (TRANSLATION, LANGUAGE_MODEL, MASKED_LANGUAGE_MODEL)


def family_of(state: dict[str, Any], path: Path) -> Family:
    """Returns the family of a checkpoint of fairseq's, or of this package where its attention has no weights of its
    own.

    Args:
        path: the checkpoint's file, for a refusal.

    Raises:
        UserError: a checkpoint of another model, or of one with projections.
    """
    name = architecture_of(model_settings(state))
    for family in FAMILIES:
        if is_of_fairseq(state, family):
            return family
        if name in ARCH_MODEL_REGISTRY and ARCH_MODEL_REGISTRY[name] is ARCH_MODEL_REGISTRY[family.model]:
            for key in projection_weights(state["model"]):
                if not is_convolution(key):
                    raise UserError(
                        f"{path} has {key}, which was trained for its own attention: name the checkpoint of a model "
                        "whose attention has no such weights, as full attention, two levels and windows have none."
                    )
            return family
    *others, last = (f"a {family.name} ({family.base})" for family in FAMILIES)
    raise UserError(
        f"{path} holds {f'a {name}' if name else 'no model of a known name'}: name the checkpoint of "
        f"{', '.join(others)} or {last} of fairseq's."
    )


def is_of_fairseq(state: dict[str, Any], family: Family) -> bool:
    """Returns whether a checkpoint is of fairseq's model of a family, and not of this package's."""
    return ARCH_MODEL_REGISTRY.get(architecture_of(model_settings(state))) is ARCH_MODEL_REGISTRY[family.base]


def task_of(state: dict[str, Any]) -> str | None:
    """Returns the name of the task that a checkpoint's model was trained for; None where there is none."""
    if state.get("cfg") is None:
        return getattr(state.get("args"), "task", None)
    task = plain_cfg(state["cfg"]).get("task")
    return task.get("_name") if isinstance(task, Mapping) else getattr(task, "_name", None)


def architecture_of(settings: Namespace) -> str | None:
    """Returns the name by which fairseq knows a checkpoint's model; None where there is none."""
    arch = getattr(settings, "arch", None)
    return arch if arch in ARCH_MODEL_REGISTRY else getattr(settings, "_name", None) or arch
