"""The command that fine-tunes a converted model with the settings of its training."""

import shlex
from argparse import Action, Namespace
from collections.abc import Collection, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import fairseq
from fairseq import options
from fairseq.dataclass.configs import DistributedTrainingConfig
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.modules.registry import flag_of

from .checkpoint import OWN, architecture_of

PACKAGE = Path(__file__).parents[1]
PARTS = ("task", "criterion", "optimizer", "lr_scheduler", "bpe", "tokenizer", "scoring")
"""The parts of a training that are chosen by a name."""
NOT_REPEATED = {
    *PARTS,
    # the machines that the model was trained on
    *({option.name for option in fields(DistributedTrainingConfig)} - {"ddp_backend", "find_unused_parameters"}),
    # where its training had files
    *("data", "user_dir", "save_dir", "tensorboard_logdir", "wandb_project", "azureml_logging", "log_file"),
    *("aim_repo", "aim_run_hash", "encoder_embed_path", "decoder_embed_path", "checkpoint_suffix"),
    "w2v_args",
    # what that began with
    *("restore_file", "continue_once", "finetune_from_model", "optimizer_overrides"),
    *("reset_dataloader", "reset_lr_scheduler", "reset_meters", "reset_optimizer"),
    # what fairseq-train takes for a TPU's
    *("tpu", "bf16", "memory_efficient_bf16"),
}
"""Settings of a training that are not flags of the next."""
FOLLOWING = {"batch_size_valid": "batch_size", "max_tokens_valid": "max_tokens"}
"""Settings that are those of others, unless told otherwise."""


def finetuning_command(asked: Namespace, flags: dict[str, Any], state: dict[str, Any]) -> str | None:
    """Returns the command line of fairseq-train that trains a converted model with the settings of its checkpoint; None
    where that was trained with a task or another part that is neither fairseq's nor this package's.

    Args:
        flags: of the new attention.
        state: the converted checkpoint.
    """
    settings = _settings(state)
    parts = {part: str(settings[part]) for part in PARTS if settings.get(part)}
    if any(name not in _known(part) for part, name in parts.items()):
        return None
    parts["arch"] = architecture_of(state)
    chosen = [str(asked.data or settings.get("data") or "DATA")]
    chosen += [word for part, name in parts.items() for word in (flag_of(part), name)]
    chosen += words_of(flags)
    parser = options.get_training_parser()
    defaults = vars(options.parse_args_and_arch(parser, chosen))
    repeated = []
    for action in parser._actions:  # which parsing has added those of the chosen parts to
        name, value = action.dest, settings.get(action.dest)
        follows = name in FOLLOWING and value == settings.get(FOLLOWING[name])
        if not (name in NOT_REPEATED or name in parts or name.startswith(OWN) or follows):
            repeated += _changed(action, value, defaults.get(name))
    start = ["--finetune-from-model", str(asked.output), "--save-dir", str(asked.output.with_suffix("")) + "-tuned"]
    return shlex.join(["fairseq-train", *chosen, "--user-dir", asked.user_dir or _user_dir(), *start, *repeated])


def words_of(flags: dict[str, Any]) -> list[str]:
    """Returns flags as the words of a command line."""
    return [
        word
        for name, value in flags.items()
        for word in ([flag_of(name)] if value is True else [flag_of(name), str(value)])
    ]


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


def _known(part: str) -> Collection[str]:
    """Returns the names that fairseq knows for a part of a training."""
    return TASK_REGISTRY.keys() if part == "task" else REGISTRIES[part]["registry"].keys()


def _changed(action: Action, value: Any, default: Any) -> list[str]:
    """Returns the words of a command line that give a flag this value, where it is not the default."""
    if value is None or str(value) == str(default) or not action.option_strings:
        return []
    flag = next(name for name in action.option_strings if name.startswith("--"))
    if action.nargs == 0:
        return [flag] if value == action.const else []
    values = list(map(str, value)) if isinstance(value, list | tuple) else [str(value)]
    return [flag, *(values if action.nargs in ("*", "+") else [",".join(values)])]


def _user_dir() -> str:
    """Returns this package as --user-dir names it: plainly where fairseq finds that, as beside itself."""
    beside = Path(fairseq.__file__).parents[1] / PACKAGE.name
    return PACKAGE.name if beside.exists() and beside.samefile(PACKAGE) else str(PACKAGE)
