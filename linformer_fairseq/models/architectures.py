"""What the architectures of all models have in common: a prefix for each kind of attention, and defaults of its flags
beside fairseq's own."""

from argparse import Namespace
from collections.abc import Callable, Iterable
from typing import Any

from fairseq.models import register_model_architecture
from omegaconf import DictConfig, OmegaConf

Architecture = Callable[[Namespace], None]
"""Fills in the flags that a user did not give, as fairseq's own do."""

PRESETS = {"linformer_": "linear", "two_level_": "two-level"}
"""The kind of attention of an architecture by the beginning of its name."""


def prefixed(names: Iterable[str]) -> dict[str, str]:
    """The kind of attention of every architecture that has a counterpart among these of fairseq's."""
    return {prefix + name: kind for prefix, kind in PRESETS.items() for name in names}


def register_architectures(
    model: str, fairseq_architectures: dict[str, Architecture], defaults: Callable[[str], dict[str, Any]]
) -> None:
    """Registers, for each kind of attention in `PRESETS`, the counterparts of fairseq's architectures.

    Args:
        model: the name of the model.
        fairseq_architectures: fairseq's function for each of its own.
        defaults: the default of every `--linformer-...` flag by the kind of attention, so that a checkpoint records it.
    """
    for prefix, kind in PRESETS.items():
        for name, architecture in fairseq_architectures.items():
            register_model_architecture(model, prefix + name)(_with_defaults(kind, architecture, defaults))


def plain_namespace(args: Namespace | DictConfig, resolve: bool = False) -> Namespace:
    """The arguments as `fairseq-train` has them, where `fairseq-hydra-train` gives a configuration."""
    if not isinstance(args, DictConfig):
        return args
    values: Any = OmegaConf.to_container(args, resolve=resolve)
    return Namespace(**values)


def _with_defaults(
    kind: str, architecture: Architecture, defaults: Callable[[str], dict[str, Any]]
) -> Callable[[Namespace | DictConfig], None]:
    def fill_in(args: Namespace | DictConfig) -> None:
        # fairseq's function asks for attributes that may be missing, which old OmegaConf answers with None
        flat = plain_namespace(args)
        for name, value in defaults(getattr(flat, "linformer_projection", kind)).items():
            setattr(flat, name, getattr(flat, name, value))
        architecture(flat)
        if flat is not args:
            args.update(vars(flat))

    return fill_in
