"""The command that fine-tunes a converted model with the settings of its training."""

import shlex
from argparse import Action, Namespace
from collections.abc import Mapping
from contextlib import redirect_stderr
from dataclasses import fields
from io import StringIO
from pathlib import Path
from typing import Any

import fairseq
from fairseq import options, registry, tasks
from fairseq.dataclass.configs import DistributedTrainingConfig

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.modules.registry import flag_of

from .checkpoint import OWN, architecture_of

PACKAGE = Path(__file__).parents[1]
PARTS = ("task", "criterion", "optimizer", "lr_scheduler", "bpe", "tokenizer", "scoring")
"""The parts of a training that are chosen by a name."""
REPEATED = {"ddp_backend", "find_unused_parameters", "fp16", "memory_efficient_fp16"}
NOT_REPEATED = {
    *PARTS,
    # the machines that the model was trained on
    *({option.name for option in fields(DistributedTrainingConfig)} - REPEATED),
    # where its training had files
    *("data", "user_dir", "save_dir", "tensorboard_logdir", "wandb_project", "azureml_logging", "log_file"),
    *("aim_repo", "aim_run_hash", "encoder_embed_path", "decoder_embed_path", "checkpoint_suffix", "w2v_args"),
    # what that began with
    *("restore_file", "continue_once", "finetune_from_model", "optimizer_overrides"),
    *("reset_dataloader", "reset_lr_scheduler", "reset_meters", "reset_optimizer"),
    # what fairseq-train takes for a TPU's
    *("tpu", "bf16", "memory_efficient_bf16"),
}
"""Settings of a training that are not flags of the next."""


def finetuning_command(asked: Namespace, flags: dict[str, Any], state: dict[str, Any]) -> str:
    """Returns the command line of fairseq-train that trains a converted model, whose attention has these flags, with
    the settings of its checkpoint; an empty one where fairseq-train cannot have them, as those of another plugin."""
    settings = _settings(state)
    parts = {part: str(settings[part]) for part in PARTS if settings.get(part)}
    for part, name in parts.items():
        if name not in (tasks.TASK_REGISTRY if part == "task" else registry.REGISTRIES[part]["registry"]):
            return ""
    parts["arch"] = architecture_of(state)
    chosen = [str(asked.data or settings.get("data") or "DATA")]
    chosen += [word for part, name in parts.items() for word in (flag_of(part), name)] + words_of(flags)
    parser = options.get_training_parser()
    try:
        with redirect_stderr(StringIO()):
            defaults = vars(options.parse_args_and_arch(parser, chosen))
    except SystemExit:  # of some models that fairseq-hydra-train alone knows the flags of
        return ""
    repeated = []
    for action in parser._actions:  # which parsing has added those of the chosen parts to
        name, value = action.dest, settings.get(action.dest)
        follows = name.endswith("_valid") and value == settings.get(name.removesuffix("_valid"))
        if not (name in NOT_REPEATED or name in parts or name.startswith(OWN) or follows):
            repeated += _changed(action, value, defaults.get(name))
    beside = Path(fairseq.__file__).parents[1] / PACKAGE.name  # where fairseq finds this package by its name alone
    own = PACKAGE.name if beside.exists() and beside.samefile(PACKAGE) else str(PACKAGE)
    start = ["--finetune-from-model", str(asked.output), "--save-dir", str(asked.output.with_suffix("")) + "-tuned"]
    return shlex.join(["fairseq-train", *chosen, "--user-dir", asked.user_dir or own, *start, *repeated])


def words_of(flags: dict[str, Any]) -> list[str]:
    """Returns flags as the words of a command line."""
    words = ([flag_of(name), *([] if value is True else [str(value)])] for name, value in flags.items())
    return [word for of_flag in words for word in of_flag]


def _settings(state: dict[str, Any]) -> dict[str, Any]:
    """Returns all flags of the training of a checkpoint, by the name of each."""
    flags: dict[str, Any] = {}
    names: dict[str, Any] = {}
    for part, settings in state["cfg"].items():
        if part != "model" and settings:
            flags |= settings if isinstance(settings, Mapping) else vars(settings)
            names[part] = flags.pop("_name", None)
    model = vars(model_settings(state))  # of some models all flags again, in which a task has left gaps
    return flags | {name: value for name, value in model.items() if value is not None} | names


def _changed(action: Action, value: Any, default: Any) -> list[str]:
    """Returns the words of a command line that give a flag this value, where it is not the default."""
    if value is None or str(value) == str(default) or not action.option_strings:
        return []
    flag = next(name for name in action.option_strings if name.startswith("--"))
    if action.nargs == 0:
        return [flag] if value == action.const else []
    if action.type is None and isinstance(value, int | float):  # which is text if it is given: fairseq has computed it
        return []
    values = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
    return [flag, *(values if action.nargs in ("*", "+") else [",".join(values)])]
