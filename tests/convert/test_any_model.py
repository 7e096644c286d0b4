"""Checkpoints of any of fairseq's models are converted without their data, and back."""

from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
)

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.convert.checkpoint import FAST_PATH, architecture_of, to_fairseq, with_settings
from tests.convert.toy_checkpoints import PATH, built, converted
from tests.models.test_any_model import CASES, SIZES
from tests.models.test_any_model import built as any_model

TASKS = {
    **{
        "multilingual_transformer": "multilingual_translation",
        "masked_lm": "masked_lm",
        "hubert": "hubert_pretraining",
    },
    **{"text to speech": "text_to_speech", "spoken text": "text_to_speech"},
    **{"speech": "speech_to_text", "begun": "language_modeling", "waves": "audio_pretraining", "tokens": "masked_lm"},
}
"""The task of a model, or of models of such inputs; of others it is translation."""
MORE = {"transformer_ulm", "speech_dlm", "s2ut_transformer", "s2spect_transformer"}
"""Models that are built from more than a checkpoint holds."""


def state_of_any(arch: str) -> dict[str, Any]:
    """Returns the part of a checkpoint of a small model that conversion reads."""
    case = CASES[arch]
    flags = {**SIZES, **case.flags, "speaker_to_id": None}
    settings: Any = Namespace(**flags, arch=arch, _name=arch)
    if known := MODEL_DATACLASS_REGISTRY.get(arch):
        settings = {name: flags[name] for name in known.__dataclass_fields__ if name in flags} | {"_name": arch}
    task = {"_name": TASKS.get(arch, TASKS.get(case.inputs, "translation")), "add_bos_token": False}
    task |= {"sample_rate": 16000, "label_rate": 50.0}
    return {"cfg": {"model": settings, "task": task}, "model": any_model(arch).state_dict()}


@pytest.mark.parametrize("arch", [arch for arch in CASES if arch in ARCH_CONFIG_REGISTRY])
def test_there_and_back(arch: str) -> None:
    """What comes back is fairseq's, with its settings and tensors. What full attention and two levels put out for short
    sequences is tested with the models."""
    state = state_of_any(arch)
    if arch in MORE:
        with pytest.raises(UserError, match=f"^fairseq needs more than a checkpoint to build a {arch} "):
            converted(state)
        return
    for kind in ("full", "two-level", *(("key-clusters",) if arch == "transformer" else ())):
        there = converted(state, linformer_projection=kind)
        assert ARCH_MODEL_NAME_REGISTRY[architecture_of(there)] == f"linformer_{ARCH_MODEL_NAME_REGISTRY[arch]}"
        back = to_fairseq(with_settings(there, PATH), PATH)
        changed = {
            "_name": arch,
            "attention_dropout": model_settings(back).attention_dropout,
        }  # clusters' is 0
        assert vars(model_settings(back)) == {**vars(model_settings(state)), **changed}
        kept = {key: tensor for key, tensor in state["model"].items() if not FAST_PATH.search(key)}
        torch.testing.assert_close(dict(back["model"]), kept, rtol=0, atol=0, equal_nan=True)
        assert type(built(back)) is ARCH_MODEL_REGISTRY[arch]
