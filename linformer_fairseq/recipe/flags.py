"""Asking fairseq's own parser about every training before the first one starts."""

import contextlib
import io
from argparse import Namespace
from pathlib import Path

from fairseq import options

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import LinformerConfig

from .settings import Model, Settings
from .train import training_arguments


def _check_unchanged(args: Namespace, model: Model, settings: Settings, out: Path) -> None:
    """Refuse flags of the user's that undo what the recipe counts on.

    Raises:
        ValueError: naming the flag.
    """
    training = settings.training
    own = {
        "arch": f"linformer_{training.arch}" if model.k else training.arch,
        "save_dir": str(out / "checkpoints"),
        "log_format": "json",
        "max_epoch": training.epochs,
        "max_update": training.updates,
        "update_freq": [1],
        "keep_interval_updates": training.keep_checkpoints,
        "no_save": False,
        "source_lang": settings.text.source_lang,
        "target_lang": settings.text.target_lang,
        **{name: False for name in ("fp16", "amp", "bf16")},
    }
    if model.k:
        own |= {"linformer_k": str(model.k), "linformer_attention": model.attention}
    for name, value in own.items():
        if getattr(args, name) != value:
            raise ValueError(
                f"--{name.replace('_', '-')} is set by the recipe, so leave it out of --linformer-args and of what "
                "follows --"
            )


def check_flags(model: Model, settings: Settings, out: Path) -> None:
    """Refuse flags that fairseq-train, or the Linformer, would refuse hours later."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = training_arguments(model, settings, out, out, freq=1)
            args = options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)
            _check_unchanged(args, model, settings, out)
            if model.k:
                config = LinformerConfig.from_namespace(args)
                for place, side, length in (
                    ("encoder", "encoder", "source"),
                    ("cross", "decoder", "source"),
                    ("decoder", "decoder", "target"),
                ):
                    if place in config.places:
                        layers, heads = getattr(args, f"{side}_layers"), getattr(args, f"{side}_attention_heads")
                        config.projections(place, layers, heads, settings.training.longest[f"--max-{length}-positions"])
    except (SystemExit, ValueError) as error:
        lines = said.getvalue().strip().split("\n")
        reason = lines[-1] if lines[-1] else str(error)
        raise UserError(f"{model.name} cannot be trained: {reason.rpartition('error: ')[2]}.") from None
