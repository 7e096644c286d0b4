"""Models of fairseq's `examples/linformer` become models of this package with the same outputs."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models.roberta import RobertaModel

from linformer_fairseq.models.linformer_example import adopt_weights
from linformer_fairseq.modules import LinearProjection
from tests.conftest import Shared
from tests.fairseq_commands import run_module
from tests.models.toy import ROBERTA_SIZES, toy_roberta

pytestmark = pytest.mark.slow

SHARINGS = {
    "headwise": {"shared_kv_compressed": 0, "shared_layer_kv_compressed": 0},
    "key-value": {"shared_kv_compressed": 1, "shared_layer_kv_compressed": 0},
    "layerwise": {"shared_kv_compressed": 0, "shared_layer_kv_compressed": 1},
    "layerwise-key-value": {"shared_kv_compressed": 1, "shared_layer_kv_compressed": 1},
}
SETTINGS: dict[str, dict[str, Any]] = {
    name: {**ROBERTA_SIZES, "compressed": 4, **flags}
    for name, flags in {
        **SHARINGS,
        "frozen": {**SHARINGS["headwise"], "freeze_compress": 1},
        "prenorm": {**SHARINGS["headwise"], "encoder_normalize_before": True},
        "untied": {**SHARINGS["headwise"], "untie_weights_roberta": True},
    }.items()
}
"""The flags of the example's models."""


@pytest.fixture(scope="module")
def folder(shared: Shared) -> Path:
    """Returns the folder with the example's models."""

    def make(folder: Path) -> None:
        run_module("tests.models.example_checkpoints", folder, json.dumps(SETTINGS)).ok()

    return shared("example", make)


def read(folder: Path, name: str) -> dict[str, Any]:
    return torch.load(folder / f"{name}.pt", weights_only=True)


def model_of(name: str, **flags: object) -> RobertaModel:
    """Returns a model of this package with the settings of one of the example's."""
    return toy_roberta(**{**SETTINGS[name], **flags})


@torch.no_grad()
@pytest.mark.parametrize("name", SETTINGS)
def test_a_model_of_the_example_keeps_its_outputs(folder: Path, name: str) -> None:
    """Where nothing is padded, which the example projects as well."""
    found, model = read(folder, name), model_of(name)
    model.load_state_dict(found["model"], strict=True)
    torch.testing.assert_close(model(found["tokens"])[0], found["logits"], rtol=0, atol=1e-4)


@torch.no_grad()
def test_names_of_before_fairseq_0_10(folder: Path) -> None:
    found, model = read(folder, "key-value"), model_of("key-value")
    model.load_state_dict({re.sub("^encoder", "decoder", key): weight for key, weight in found["model"].items()})
    torch.testing.assert_close(model(found["tokens"])[0], found["logits"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_example_are_those_of_its_weights(name: str) -> None:
    model = model_of(name)
    weights = {module.weight for module in model.modules() if isinstance(module, LinearProjection)}
    matrices = {"key-value": 2, "layerwise": 1, "layerwise-key-value": 1}
    assert len(weights) == matrices.get(name, 4)
    assert {tuple(weight.shape) for weight in weights} == {(16, 64)}
    assert {weight.requires_grad for weight in weights} == {name != "frozen"}


def test_the_longest_text_of_the_example() -> None:
    """Without `--max-positions` it is `--tokens-per-sample`, as in the example."""
    model = model_of("headwise", max_positions=None, tokens_per_sample=32)
    assert {tuple(x.weight.shape) for x in model.modules() if isinstance(x, LinearProjection)} == {(8, 32)}


def test_other_weights_stay_as_they_are() -> None:
    state = toy_roberta().state_dict()
    assert adopt_weights(state) is state


@pytest.mark.parametrize(
    ("name", "flags", "sentence_start"),
    [
        ("headwise", {"compressed": 8}, r"the checkpoint's \S+ has shape \(16, 64\), this model's \(8, 64\): give the"),
        ("headwise", {"shared_kv_compressed": 1}, r"the checkpoint's \S+ is not shared as in this model"),
        ("headwise", {"shared_layer_kv_compressed": 1}, r"the checkpoint's \S+ is not shared as in this model"),
        (
            "untied",
            {"untie_weights_roberta": False},
            "the checkpoint's output layer has weights of its own: give --untie-weights-roberta$",
        ),
    ],
)
def test_weights_that_differ_from_the_settings_are_refused(
    folder: Path, name: str, flags: dict[str, object], sentence_start: str
) -> None:
    """The example itself shared less than its flags said before its second version."""
    state = {key: weight for key, weight in read(folder, name)["model"].items() if not key.endswith("version")}
    with pytest.raises(SystemExit, match=f"^error: {sentence_start}"):
        model_of(name, **flags).load_state_dict(state)
