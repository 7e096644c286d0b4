"""Checkpoints of small models of fairseq's with random weights, and what is converted from them."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf import OmegaConf

from linformer_fairseq.convert.building import build_model, build_original
from linformer_fairseq.convert.checkpoint import convert_state, new_attention, with_settings
from linformer_fairseq.modules import KINDS
from tests.models.test_language_model import toy_lm, toy_lm_args
from tests.models.toy import toy_args, toy_model, toy_roberta, toy_roberta_args

PATH = Path("trained.pt")
CUT = {
    "linformer_k": "4",
    "linformer_exact_below": 24,
    "linformer_slot_width": 4,
    "linformer_block_size": 4,
    "linformer_open_slots": 1,
}
"""Two levels with full attention below 24 tokens, and closed slots in longer texts."""


def state_of(arch: str = "transformer", **flags: object) -> dict[str, Any]:
    """Returns the part of what fairseq-train saves for a translation model that conversion reads."""
    args = toy_args(arch, **flags)
    args._name = arch
    return _state(args, "translation", toy_model(arch, **flags))


def roberta_state_of() -> dict[str, Any]:
    """Returns the same for a masked language model of up to 64 tokens."""
    args = toy_roberta_args("roberta")
    args._name = "roberta"
    return _state(args, "masked_lm", toy_roberta("roberta"))


def lm_state_of(arch: str = "transformer_lm_gpt2_tiny", **flags: object) -> dict[str, Any]:
    """Returns the same for a language model, whose flags fairseq keeps in a configuration."""
    args = Namespace(**vars(toy_lm_args(arch, **flags)), task="language_modeling", data="here")
    args = Namespace(**{name: value for name, value in vars(args).items() if not name.startswith("linformer_")})
    cfg = OmegaConf.to_container(convert_namespace_to_omegaconf(args))
    return {"args": None, "cfg": cfg, "model": toy_lm(arch, **flags).state_dict()}


def _state(args: Any, task: str, model: Any) -> dict[str, Any]:
    return {"args": None, "cfg": {"model": args, "task": {"_name": task}}, "model": model.state_dict()}


def converted(state: dict[str, Any], **flags: object) -> dict[str, Any]:
    """Returns a checkpoint converted to another attention, by default to two levels in all places."""
    kind = KINDS[flags.setdefault("linformer_projection", "two-level")]
    state = with_settings(state, PATH)
    before = build_original(state)
    given = {**({"linformer_k": "8"} if kind.options.uses_k else {}), **flags}
    new = convert_state(state, new_attention(state, given, before.model)[1])
    build_model(new, before.task)
    return new


def built(state: dict[str, Any]) -> Any:
    """Returns the model of a checkpoint in float64."""
    return build_original(state).model.double()
