"""Checkpoints of small models of fairseq's with random weights."""

from typing import Any

from linformer_fairseq.convert.families import TRANSLATION, Family
from linformer_fairseq.models.config import AttentionConfig
from linformer_fairseq.modules import KINDS
from tests.models.test_language_model import toy_lm, toy_lm_args
from tests.models.toy import toy_args, toy_model

CUT = {
    "linformer_k": "4",
    "linformer_exact_below": 24,
    "linformer_slot_width": 4,
    "linformer_block_size": 4,
    "linformer_open_slots": 1,
}
"""Two levels with full attention below 24 tokens, and closed slots in longer texts."""


def config(family: Family = TRANSLATION, **flags: object) -> AttentionConfig:
    """Returns the new attention, by default with two levels in all places."""
    flags = {"linformer_projection": "two-level", **flags}
    return family.config(
        {**({"linformer_k": "8"} if KINDS[flags["linformer_projection"]].options.uses_k else {}), **flags}
    )


def state_of(arch: str = "transformer", **flags: object) -> dict[str, Any]:
    """Returns the part of what fairseq-train saves for a translation model that conversion reads."""
    args = toy_args(arch, **flags)
    args._name = arch
    model = toy_model(arch, **flags).state_dict()
    return {"args": None, "cfg": {"model": args, "task": {}}, "model": model, "extra_state": {}}


def lm_state_of(arch: str = "transformer_lm_gpt2_tiny", **flags: object) -> dict[str, Any]:
    """Returns the same for a language model."""
    args = {name: value for name, value in vars(toy_lm_args(arch, **flags)).items() if not name.startswith("linformer")}
    del args["arch"]
    cfg = {"model": {**args, "_name": arch}, "task": {}}
    return {"args": None, "cfg": cfg, "model": toy_lm(arch, **flags).state_dict(), "extra_state": {}}


def roberta_state_of(**flags: object) -> dict[str, Any]:
    """Returns the same for a masked language model of up to 64 tokens."""
    state = state_of("roberta", max_positions=64, **flags)
    state["cfg"]["task"] = {"_name": "masked_lm"}
    return state
