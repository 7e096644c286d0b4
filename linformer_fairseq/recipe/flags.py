"""Asking fairseq's own parser about every training before the first one starts."""

import contextlib
import io
from pathlib import Path

from fairseq import options

from linformer_fairseq.models.config import LinformerConfig

from .errors import RecipeError
from .settings import FAIRSEQ_MAX_POSITIONS, Model, Settings
from .train import training_arguments


def check_flags(model: Model, settings: Settings, out: Path) -> None:
    """Refuse flags that fairseq-train, or the Linformer, would refuse hours later."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            arguments = training_arguments(model, settings, out, out)
            args = options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)
            if model.k:
                config = LinformerConfig.from_namespace(args)
                limit = getattr(args, "max_source_positions", None) or FAIRSEQ_MAX_POSITIONS
                for place, side in (("encoder", "encoder"), ("cross", "decoder")):
                    if place in config.places:
                        layers, heads = getattr(args, f"{side}_layers"), getattr(args, f"{side}_attention_heads")
                        config.projections(place, layers, heads, limit)
    except (SystemExit, ValueError) as error:
        lines = said.getvalue().strip().split("\n")
        reason = lines[-1] if lines[-1] else str(error)
        raise RecipeError(f"{model.name} cannot be trained: {reason.rpartition('error: ')[2]}.") from None
