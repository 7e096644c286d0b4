"""From the checkpoint of any of fairseq's models with attention to one with another attention, and back."""

import copy
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairseq.checkpoint_utils import _upgrade_state_dict
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
)
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

from linformer_fairseq.checkpoints import model_settings, plain_cfg
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import PREFIXES, AttentionConfig, default_flags
from linformer_fairseq.models.loading import is_convolution, projection_weights
from linformer_fairseq.models.register import SwappedModel
from linformer_fairseq.models.swap import FAST_PATH_PARAMETERS

PACKAGE = "linformer_fairseq."
OWN = "linformer_"
"""How the names of this package's models begin, and those of the flags of their attention."""
CONVOLUTION, MASKING = "linformer_value_convolution", "linformer_mask_empty_slots"


def with_settings(state: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns a checkpoint with its settings in plain containers, in the form that fairseq has had since 0.10.

    Args:
        state: a checkpoint of fairseq's, or of this package where its attention has no weights of its own.
        path: its file, for a refusal.

    Raises:
        UserError: a checkpoint of another model, or of one with projections.
    """
    arch = architecture_of(state)
    if arch not in ARCH_MODEL_REGISTRY:
        held = f"a {arch}, which is no model that fairseq knows" if arch else "no model of a known name"
        raise UserError(f"{path} holds {held}: name the checkpoint of one that it knows, or --user-dir of its plugin.")
    if OWN + model_of(arch) not in MODEL_REGISTRY:
        raise UserError(
            f"{path} holds a {arch}, whose attention is not fairseq's: name the checkpoint of a Transformer."
        )
    for key in projection_weights(state["model"]):
        if not is_convolution(key):
            raise UserError(
                f"{path} has {key}, which was trained for its own attention: name the checkpoint of a model whose "
                "attention has no such weights, as full attention, two levels and windows have none."
            )
    cfg = state.get("cfg")
    if cfg is None:
        history = {"optimizer_name": None, "lr_scheduler_state": None, "num_updates": 0}
        old = {"args": copy.deepcopy(state["args"]), "optimizer_history": [history]}
        cfg = _upgrade_state_dict({**old, "extra_state": {"train_iterator": None}})["cfg"]
    return {**state, "args": None, "cfg": plain_cfg(cfg)}


def architecture_of(state: dict[str, Any]) -> str:
    """Returns the name by which fairseq knows a checkpoint's model; an empty one where there is none."""
    settings = model_settings(state)
    arch: str = getattr(settings, "arch", None) or ""
    return arch if arch in ARCH_MODEL_REGISTRY else getattr(settings, "_name", None) or arch


def model_of(arch: str) -> str:
    """Returns fairseq's name of the model that an architecture, of fairseq's or of this package's, belongs to."""
    return ARCH_MODEL_NAME_REGISTRY[arch].removeprefix(OWN)


def is_converted(state: dict[str, Any]) -> bool:
    """Returns whether a checkpoint is of a model of this package's, and not of fairseq's."""
    return issubclass(ARCH_MODEL_REGISTRY[architecture_of(state)], SwappedModel)


def flags_of(state: dict[str, Any], given: Mapping[str, Any], places: set[str]) -> dict[str, Any]:
    """Returns the flags by which fairseq-train builds the attention that was asked for: those given, what a model has
    learnt beside its attention, and that empty slots of learned E and F are masked, with which it can start as full
    attention of up to k tokens.

    Args:
        state: the checkpoint.
        places: where its model has attention.
    """
    width = getattr(model_settings(state), CONVOLUTION, 0)
    flags = {**({CONVOLUTION: width} if width else {}), **given}
    return {**flags, **({MASKING: True} if MASKING in attention(flags, places).used_options else {})}


def attention(flags: Mapping[str, Any], places: set[str]) -> AttentionConfig:
    """Returns the attention that these flags describe in a model that has attention in these places.

    Raises:
        UserError: flags that do not go together, or not with the model.
    """
    try:
        return AttentionConfig.from_namespace(Namespace(**flags)).in_model(places)
    except ValueError as error:
        raise UserError(f"{error}.") from None


def convert_state(state: dict[str, Any], config: AttentionConfig) -> dict[str, Any]:
    """Returns a checkpoint converted to another kind of attention, whose own parameters are not in it yet.

    Args:
        state: what `with_settings` returns; it is left unchanged.
    """
    flags = {name: getattr(config, name) for name in default_flags(config.linformer_projection)}
    if not all(config.kind_of(place).attention.drops_probabilities for place in config.places):
        flags["attention_dropout"] = 0.0  # which matters in training alone, whose command line says it anew
    prefixes = {kind: prefix for prefix, kind in PREFIXES.items()}
    return _renamed(state, OWN, prefixes.get(config.linformer_projection, OWN), flags)


def to_fairseq(state: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns a converted checkpoint as one of fairseq's own model again.

    Args:
        state: what `with_settings` returns; it is left unchanged.

    Raises:
        UserError: a checkpoint that is fairseq's already, or of attention that has weights of its own.
    """
    if not is_converted(state):
        raise UserError(f"{path} is of fairseq's own model already: leave out --to-fairseq, or name a converted one.")
    for key in projection_weights(state["model"]):
        raise UserError(
            f"{path} has {key}, which fairseq's model has no place for: name a checkpoint without such weights."
        )
    new = _renamed(state, "", "", {})
    arch = architecture_of(new)
    parts = {part: _without_own(settings, arch) for part, settings in new["cfg"].items()}
    return {**new, "cfg": {**parts, "task": _task_of_fairseq(parts.get("task"))}}


def _renamed(state: dict[str, Any], own: str, prefix: str, flags: dict[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint of the same model with another beginning of its names.

    Args:
        own: how the name of the new model begins.
        prefix: how that of its architecture does.
        flags: settings that it gets in place of those of the attention that it had.
    """
    settings = model_settings(state)
    arch = architecture_of(state)
    name, model = own + model_of(arch), model_of(arch)
    if is_converted(state):
        arch = next(arch.removeprefix(known) for known in PREFIXES if arch.startswith(known))
    # one of fairseq's model that this package alone has, or another plugin, is none where that reads the checkpoint
    known = [x for x in (prefix + arch, prefix + model, *ARCH_MODEL_INV_REGISTRY[name]) if x in ARCH_MODEL_REGISTRY]
    arch = next(x for x in known if own or not ARCH_CONFIG_REGISTRY[x].__module__.startswith(PACKAGE))
    values = {flag: value for flag, value in vars(settings).items() if not flag.startswith(OWN)} | flags
    new: Any
    if name in MODEL_DATACLASS_REGISTRY:
        new = {flag: value for flag, value in values.items() if flag != "arch"} | {"_name": name}
    else:
        new = Namespace(**{**values, "arch": arch, "_name": arch})
    weights = {key: tensor for key, tensor in state["model"].items() if not is_fast_path(key)}
    return {**state, "model": weights, "cfg": {**state["cfg"], "model": new}}


def _without_own(settings: Any, arch: str) -> Any:
    """Returns a part of a configuration, which may have all flags of the training, without those of this package."""
    if not isinstance(settings, Namespace | dict):
        return settings
    values = vars(settings) if isinstance(settings, Namespace) else settings
    values = {flag: value for flag, value in values.items() if not flag.startswith(OWN)}
    values |= {flag: value for flag, value in (("arch", arch), ("user_dir", None)) if flag in values}
    return Namespace(**values) if isinstance(settings, Namespace) else values


def _task_of_fairseq(settings: Any) -> Any:
    """Returns the settings of a task; of one that this package adds, those of the task of fairseq's that it extends."""
    task = TASK_REGISTRY.get(task_of(settings))
    if task is None or not task.__module__.startswith(PACKAGE):
        return settings
    names = {known: name for name, known in TASK_REGISTRY.items() if not known.__module__.startswith(PACKAGE)}
    name = next(names[base] for base in task.__mro__ if base in names)
    return {**{flag.name: settings[flag.name] for flag in fields(TASK_DATACLASS_REGISTRY[name])}, "_name": name}


def task_of(settings: Any) -> str | None:
    """Returns the name of the task that has these settings; None where there is none."""
    return settings.get("_name") if isinstance(settings, Mapping) else getattr(settings, "_name", None)


def is_fast_path(key: str) -> bool:
    """Returns whether a tensor is a copy that fairseq 0.12.2 keeps for a fused kernel."""
    module, _, name = key.rpartition(".")
    return name in FAST_PATH_PARAMETERS and not module.endswith("_attn")  # whose own are of fairseq before 0.8
