"""Asking fairseq's own parser about every training before the first one starts."""

import contextlib
import dataclasses
import io
from argparse import Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fairseq import options

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import LinformerConfig

from .settings import Model, Settings
from .train import training_arguments
from .worker import check_arguments

OVERRIDABLE = {"--num-workers", "--log-interval"}
"""Flags that the recipe sets and the user may set otherwise, as no result depends on them."""


def _check_unchanged(args: Namespace, model: Model, settings: Settings, out: Path) -> None:
    """Raises ValueError for flags of the user's that undo what the recipe relies on."""
    training = settings.training
    without = dataclasses.replace(training, train_args=[], linformer_args=[])
    arguments = training_arguments(model, dataclasses.replace(settings, training=without), out, out, freq=1)
    given = training.train_args + training.linformer_args
    check_unchanged(args, arguments, given, "--linformer-args and of what follows --")
    for flag, longest in training.longest.items():
        if _value(args, flag) not in (None, longest):
            raise ValueError(f"{flag} is for all models alike: give it after --, not in --linformer-args")


def check_unchanged(args: Namespace, own: Sequence[str], given: Sequence[str], where: str) -> None:
    """Refuses flags of the user's that undo what a recipe relies on.

    Args:
        args: what fairseq's parser makes of all arguments.
        own: the arguments without those that the user has given in `where`.

    Raises:
        UserError, ValueError: naming the flag.
    """
    names = {argument for argument in own if argument.startswith("--")} - OVERRIDABLE - {"--cpu"}
    unchanged = parse_training(list(own))
    for name in sorted(names | {"--no-save", "--fp16", "--amp", "--bf16"}):
        if _value(args, name) != _value(unchanged, name):
            raise ValueError(f"{name} is set by the recipe, so leave it out of {where}")
    check_arguments(given)


def _value(args: Namespace, flag: str) -> Any:
    return getattr(args, flag[2:].replace("-", "_"), None)


def parse_training(arguments: list[str]) -> Namespace:
    """Returns what fairseq's own parser makes of the arguments of fairseq-train."""
    return options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)


@contextlib.contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turns what fairseq or the attention refuses within into one sentence for the user of the model `name`.

    Raises:
        UserError: something was refused.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except (SystemExit, ValueError, UserError) as error:
        lines = said.getvalue().strip().split("\n")
        reason = lines[-1] if lines[-1] else str(error)
        raise UserError(f"{name} cannot be trained: {reason.rpartition('error: ')[2].rstrip('.')}.") from None


def check_flags(model: Model, settings: Settings, out: Path) -> None:
    """Refuses flags that fairseq-train, or the attention, would refuse hours later."""
    with refusing(model.name):
        arguments = training_arguments(model, settings, out, out, freq=1)
        args = parse_training(arguments)
        _check_unchanged(args, model, settings, out)
        if model.k:
            config = LinformerConfig.from_namespace(args)
            for place in sorted(config.places):
                side = "encoder" if place == "encoder" else "decoder"
                length = "target" if place == "decoder" else "source"
                layers, heads = getattr(args, f"{side}_layers"), getattr(args, f"{side}_attention_heads")
                longest = settings.training.longest[f"--max-{length}-positions"]
                build = config.attention(place, layers, heads, longest)[0]
                role = "encoder_decoder_attention" if place == "cross" else "self_attention"
                width = getattr(args, f"{side}_embed_dim")
                build(width, heads, dropout=args.attention_dropout, **{role: True})  # may miss a package
