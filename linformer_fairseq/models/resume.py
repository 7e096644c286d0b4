"""Whether a training goes on with the attention that it was begun with."""

from argparse import Namespace
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from fairseq.checkpoint_utils import load_checkpoint_to_cpu
from fairseq.logging import metrics
from omegaconf import DictConfig, OmegaConf

from linformer_fairseq.checkpoints import model_settings, read_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import AttentionConfig, listed
from linformer_fairseq.models.linformer_example import adopt_settings
from linformer_fairseq.modules.registry import CAUSAL_KINDS, flag_of


def is_training() -> bool:
    """Whether fairseq's Trainer is at work, which starts this meter."""
    return metrics.get_meter("default", "wall") is not None


def resumed_from(flags: Namespace | DictConfig) -> Path | None:
    """The checkpoint that fairseq-train goes on from, as far as it is a file here.

    None where a new training begins with the weights of another one, by `--finetune-from-model` or `--reset-optimizer`,
    for a checkpoint that has a URL or is in shards, and outside of a training.

    Args:
        flags: the model's, among which are all others of fairseq-train, or which are a part of its configuration.
    """
    said: Any = flags
    if isinstance(flags, DictConfig):
        said = OmegaConf.select(flags._get_root(), "checkpoint")
    if not is_training() or getattr(said, "restore_file", None) is None or said.reset_optimizer:
        return None
    path = Path(said.restore_file.replace(".pt", f"{said.checkpoint_suffix or ''}.pt"))
    if said.restore_file == "checkpoint_last.pt":
        path = said.save_dir / path
        if not path.is_file() and said.continue_once:
            path = Path(said.continue_once)
    return path if path.is_file() else None


def settings_of(checkpoint: Path) -> Namespace | None:
    """The flags of a checkpoint's model; None where the safe loader refuses what fairseq has been told to read."""
    is_safe = hasattr(torch.serialization, "add_safe_globals")  # older torch has fairseq's loader alone
    try:
        state = read_checkpoint(checkpoint, mmap=True) if is_safe else load_checkpoint_to_cpu(str(checkpoint))
    except UserError:
        return None
    settings = model_settings(state)
    adopt_settings(settings)
    return settings


def check_resumed(checkpoint: Path, settings: Namespace, given: Namespace, places: Collection[str]) -> None:
    """Compares the attention of a training with that of the checkpoint that it goes on from, however flags say it.

    A checkpoint whose flags mean no attention of today's is not compared.

    Args:
        settings: the flags of the checkpoint's model, which may be fairseq's own.
        given: those of the training.
        places: where its model has attention.

    Raises:
        ValueError: they differ; it names the flags with which the training goes on.
    """
    swapped = any(name.startswith("linformer_") for name in vars(settings))
    theirs = AttentionConfig.from_namespace(settings if swapped else Namespace(linformer_projection="full"))
    ours = AttentionConfig.from_namespace(given)
    if (found := attention(theirs, places)) is None:
        return
    is_another = found != attention(ours, places)
    flags = [f"--arch {getattr(settings, 'arch', None) or settings._name}"] if is_another and not swapped else []
    longest, longest_now = (getattr(x, "max_target_positions", None) for x in (settings, given))
    if "decoder" in found and CAUSAL_KINDS[found["decoder"]["kind"]].options.follows_length and longest != longest_now:
        flags += [f"--max-target-positions {longest}"] if longest and longest_now else []
    for name, value in vars(theirs).items() if is_another and swapped else ():
        with_ours = replace(theirs, **{name: getattr(ours, name)})
        if attention(with_ours, places) == found:
            theirs = with_ours
        elif value is None or isinstance(value, bool):
            flags.append(f"{'' if value else 'no '}{flag_of(name)}")
        else:
            flags.append(f"{flag_of(name)} {listed(value)}")
    if flags:
        raise ValueError(
            f"{checkpoint} was trained with {', '.join(flags)}: go on so, or name another --save-dir (and "
            f"--finetune-from-model {checkpoint} to start from its weights)"
        )


def attention(config: AttentionConfig, places: Collection[str]) -> dict[str, dict[str, Any]] | None:
    """What the attention in each place of a model is, in words that are equal where the attention is; None where the
    flags mean none."""
    try:
        config = config.in_model(places)
    except ValueError:
        return None
    found: dict[str, dict[str, Any]] = {place: {"kind": "full"} for place in places}
    for place in config.places:
        kind = config.kind_of(place)
        found[place] = {"kind": kind.name, **vars(kind.options_from(config))}
        if kind.options.uses_k:
            dims = [k.strip() for k in listed(config.k_of(place)[1]).split(",")]
            found[place]["k"] = dims[:1] if len(set(dims)) == 1 else dims
        if place == "encoder" and config.linformer_value_convolution:
            found[place]["convolution"] = config.linformer_value_convolution
    return found
