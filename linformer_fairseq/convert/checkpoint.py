"""From the checkpoint of any of fairseq's models with attention to one with another attention, and back."""

import copy
import re
import textwrap
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fairseq import models, tasks
from fairseq.checkpoint_utils import _upgrade_state_dict
from torch import nn

from linformer_fairseq.checkpoints import model_settings, plain_cfg
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import PREFIXES, AttentionConfig
from linformer_fairseq.models.loading import is_convolution, projection_weights
from linformer_fairseq.models.register import SwappedModel
from linformer_fairseq.models.swap import FAST_PATH_PARAMETERS, places_of
from linformer_fairseq.modules import LinearProjection
from linformer_fairseq.modules.registry import flag_of

PACKAGE = "linformer_fairseq."
OWN = "linformer_"
"""How the names of this package's models begin, and those of the flags of their attention."""
FAST_PATH = re.compile(rf"(?<!_attn)\.({'|'.join(FAST_PATH_PARAMETERS)})$")
"""Copies for a fused kernel, which fairseq 0.12.2 makes anew from weights; those in attention are of before 0.8."""
CONVOLUTION, MASKING = "linformer_value_convolution", "linformer_mask_empty_slots"


def with_settings(state: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns a checkpoint with its settings in plain containers, in the form that fairseq has had since 0.10.

    Raises:
        UserError: one of a model without fairseq's attention, or of this package with projections, naming its `path`.
    """
    arch = architecture_of(state)
    if OWN + model_of(arch) not in models.MODEL_REGISTRY:
        raise UserError(
            f"{path} holds {f'a {arch}' if arch else 'no model of a known name'}: name the checkpoint of a model that "
            "has fairseq's attention, and the --user-dir of its plugin if it is no model of fairseq's."
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
        try:
            cfg = _upgrade_state_dict({**old, "extra_state": {"train_iterator": None}})["cfg"]
        except Exception as error:  # whatever fairseq makes of settings that it does not know
            reason = textwrap.shorten(f"{type(error).__name__}: {error}", 300)
            raise UserError(f"{path} has settings that fairseq cannot read ({reason}): give --user-dir.") from None
    weights = {key: tensor for key, tensor in state["model"].items() if not FAST_PATH.search(key)}
    return {**state, "args": None, "cfg": plain_cfg(cfg), "model": weights}


def architecture_of(state: dict[str, Any]) -> str:
    """Returns the name by which fairseq knows a checkpoint's model; an empty one where there is none."""
    settings = model_settings(state)
    arch: str = getattr(settings, "arch", None) or ""
    return arch if arch in models.ARCH_MODEL_REGISTRY else getattr(settings, "_name", None) or arch


def model_of(arch: str) -> str:
    """Returns fairseq's name of the model that an architecture, of fairseq's or of this package's, belongs to."""
    return models.ARCH_MODEL_NAME_REGISTRY.get(arch, arch).removeprefix(OWN)


def task_of(state: dict[str, Any]) -> str | None:
    """Returns the name of the task that a checkpoint's model was trained for; None where there is none."""
    settings = state["cfg"].get("task")
    return settings.get("_name") if isinstance(settings, Mapping) else getattr(settings, "_name", None)


def is_converted(state: dict[str, Any]) -> bool:
    """Returns whether a checkpoint is of a model of this package's, and not of fairseq's."""
    return issubclass(models.ARCH_MODEL_REGISTRY[architecture_of(state)], SwappedModel)


def new_attention(
    state: dict[str, Any], given: Mapping[str, Any], model: nn.Module
) -> tuple[dict[str, Any], AttentionConfig]:
    """Returns the flags of the attention that was asked for, and what they mean in a checkpoint's model. A convolution
    over the values stays, and empty slots of learned E and F are masked, with which attention can start as full for up
    to k tokens.

    Raises:
        UserError: flags that do not fit the model, or would take its convolution away.
    """
    flags = dict(given)
    try:
        config = AttentionConfig.from_namespace(Namespace(**given)).in_model(places_of(model))
    except ValueError as error:
        raise UserError(f"{error}.") from None
    if width := getattr(model_settings(state), CONVOLUTION, 0):
        if flags.setdefault(CONVOLUTION, width) != width:
            raise UserError(f"the encoder has a convolution over {width} values: leave out {flag_of(CONVOLUTION)}.")
        if "encoder" not in config.places:
            raise UserError(
                f"the encoder has a convolution over {width} values, which only this package's attention has: name "
                "encoder in --linformer-attention too, where --linformer-encoder-projection full is full attention."
            )
        config.linformer_value_convolution = width
    if MASKING in config.used_options:
        flags[MASKING] = True
        setattr(config, MASKING, True)
    return flags, config


def start_as_identity(model: nn.Module) -> None:
    """Lets slot c begin as token c where E and F are learned: with empty slots masked, as full attention."""
    for module in model.modules():
        if isinstance(module, LinearProjection):
            module.start_as_identity()


def convert_state(state: dict[str, Any], config: AttentionConfig) -> dict[str, Any]:
    """Returns what `with_settings` returned converted to another attention, whose own parameters are not in it yet."""
    flags = {name: value for name, value in vars(config).items() if name.startswith(OWN)}
    if not all(config.kind_of(place).attention.drops_probabilities for place in config.places):
        flags["attention_dropout"] = 0.0  # which matters in training alone, whose command line says it anew
    prefix = next((prefix for prefix, kind in PREFIXES.items() if kind == config.linformer_projection), OWN)
    return _renamed(state, OWN, prefix, flags)


def to_fairseq(state: dict[str, Any], path: Path) -> dict[str, Any]:
    """Returns what `with_settings` returned as a checkpoint of fairseq's own model again."""
    if not is_converted(state):
        raise UserError(f"{path} is of fairseq's own model already: leave out --to-fairseq, or name a converted one.")
    for key in projection_weights(state["model"]):
        raise UserError(f"{path} has {key}, for which fairseq's model has no place: name a model without such weights.")
    new, registry = _renamed(state, "", "", {}), tasks.TASK_REGISTRY
    task = registry.get(task_of(new))
    if task is not None and task.__module__.startswith(PACKAGE):  # which extends one of fairseq's
        name = next(x for x in registry if x != task_of(new) and issubclass(task, registry[x]))
        kept = {flag.name: new["cfg"]["task"][flag.name] for flag in fields(tasks.TASK_DATACLASS_REGISTRY[name])}
        new["cfg"]["task"] = {**kept, "_name": name}
    return new


def _renamed(state: dict[str, Any], own: str, prefix: str, flags: dict[str, Any]) -> dict[str, Any]:
    """Returns a checkpoint of the same model under the names with these beginnings, of the model and of its
    architecture, with other flags in place of those of the attention that it had."""
    arch = architecture_of(state)
    name = own + model_of(arch)
    if is_converted(state):
        arch = next(arch.removeprefix(known) for known in PREFIXES if arch.startswith(known))
    known = {x for x, fill in models.ARCH_CONFIG_REGISTRY.items() if own or not fill.__module__.startswith(PACKAGE)}
    # the architecture may be this package's or a plugin's alone; what it says is among the settings
    arch = next(x for x in (prefix + arch, *models.ARCH_MODEL_INV_REGISTRY[name]) if x in known)

    def renamed(part: str, settings: Any) -> Any:
        if not isinstance(settings, Namespace | dict):
            return settings
        values = settings if isinstance(settings, dict) else vars(settings)
        values = {flag: value for flag, value in values.items() if not flag.startswith(OWN)}
        if part == "model":
            values |= {**flags, "_name": name if name in models.MODEL_DATACLASS_REGISTRY else arch}
        return type(settings)(**(values | ({"arch": arch} if "arch" in values else {})))  # some parts have all flags

    return {**state, "model": dict(state["model"]), "cfg": {part: renamed(part, x) for part, x in state["cfg"].items()}}
