"""The state of a checkpoint is converted, or refused."""

import copy
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.convert.checkpoint import MODEL, build_model, convert_state
from linformer_fairseq.models.config import LinformerConfig
from linformer_fairseq.models.layers import FAST_PATH_PARAMETERS
from tests.models.toy import batch, previous_tokens, sentence, toy_args, toy_model, toy_task

PATH = Path("trained.pt")


def config(**flags: object) -> LinformerConfig:
    return LinformerConfig.from_namespace(
        Namespace(**{"linformer_k": "8", "linformer_projection": "two-level", **flags})
    )


def state_of(arch: str = "transformer", **flags: object) -> dict[str, Any]:
    """Returns the part of what fairseq-train saves that conversion reads."""
    args = toy_args(arch, **flags)
    args._name = arch
    model = toy_model(arch, **flags).state_dict()
    return {"args": None, "cfg": {"model": args, "task": {}}, "model": model, "extra_state": {}}


@pytest.mark.parametrize(
    ("kind", "arch"), [("two-level", "two_level_transformer"), ("pooled-linear", "linformer_transformer")]
)
def test_short_sentences_are_translated_as_before(kind: str, arch: str) -> None:
    """The model of the new settings predicts the same for sentences of up to as many tokens as slots."""
    state = state_of()
    new = convert_state(state, PATH, config(linformer_projection=kind))
    args = new["cfg"]["model"]
    assert (args.arch, args._name) == (arch, "linformer_transformer")
    model = build_model(new)
    task = toy_task()
    inputs = batch(task, [sentence(task, 8), sentence(task, 3)], left_pad=True)["net_input"]
    previous = previous_tokens(task, sentence(task, 20, 1)[None].expand(2, -1))
    longer = batch(task, [sentence(task, 20)], left_pad=True)["net_input"]
    with torch.no_grad():
        before, after = (m(**inputs, prev_output_tokens=previous)[0] for m in (toy_model("transformer"), model))
        torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
        moved = (m(**longer, prev_output_tokens=previous[:1])[0] for m in (toy_model("transformer"), model))
        assert (next(moved) - next(moved)).abs().max() > 1e-3


def test_what_is_converted_stays_as_it_is() -> None:
    state = state_of()
    kept = copy.deepcopy(state)
    new = convert_state(state, PATH, config(linformer_projection="pooled-linear"))
    assert vars(state["cfg"]["model"]) == vars(kept["cfg"]["model"])
    assert state["model"].keys() == kept["model"].keys()
    weights = {name: w for name, w in kept["model"].items() if name.rpartition(".")[2] not in FAST_PATH_PARAMETERS}
    assert all(torch.equal(new["model"][name], tensor) for name, tensor in weights.items())
    added = {name: tuple(tensor.shape) for name, tensor in new["model"].items() if name not in kept["model"]}
    assert added == {
        f"{side}.layers.{layer}.{attention}.{name}_projection.weight": (8, 64)
        for side, attention in (("encoder", "self_attn"), ("decoder", "encoder_attn"))
        for layer in (0, 1)
        for name in ("key", "value")
    }


def test_checkpoints_of_other_fairseqs() -> None:
    """Checkpoints of fairseq-hydra-train, and those of fairseq before 0.10, are converted."""
    state = state_of()
    flat = vars(state["cfg"]["model"])
    hydra = {**state, "cfg": OmegaConf.create({"model": flat, "task": {"data": "here"}})}
    new = convert_state(hydra, PATH, config())
    assert new["cfg"]["model"].linformer_k == "8"
    assert new["cfg"]["task"] == {"data": "here"}
    old = {"args": Namespace(**flat, data="here"), "model": state["model"], "extra_state": {}}
    new = convert_state(old, PATH, config())
    assert new["args"].linformer_k == "8"
    assert new["args"].data == "here"
    assert model_settings(new).arch == "two_level_transformer"


def test_architectures_of_other_sizes() -> None:
    """An architecture of fairseq's has a counterpart of the same name; any other one becomes the base."""
    state = state_of()
    for arch, kind, new in (
        ("transformer_iwslt_de_en", "two-level", "two_level_transformer_iwslt_de_en"),
        ("transformer_iwslt_de_en", "linear", "linformer_transformer_iwslt_de_en"),
        ("transformer_mine", "linear", "linformer_transformer"),
    ):
        state["cfg"]["model"].arch = arch
        assert convert_state(state, PATH, config(linformer_projection=kind))["cfg"]["model"].arch == new


def test_copies_that_fairseq_0_12_2_keeps_are_dropped() -> None:
    state = state_of()
    state["model"] = {**state["model"], "encoder.layers.0.in_proj_weight": torch.zeros(3)}
    assert "encoder.layers.0.in_proj_weight" not in convert_state(state, PATH, config())["model"]


@pytest.mark.parametrize(
    ("trained", "flags", "said"),
    [
        ({"_name": MODEL, "arch": MODEL}, {}, "trained.pt holds a linformer_transformer: name the checkpoint of a"),
        ({"_name": None, "arch": None}, {}, "holds no model of a known name"),
        ({"quant_noise_pq": 0.1}, {"linformer_sharing": "none", "linformer_projection": "linear"}, "--quant-noise-pq"),
        ({"quant_noise_scalar": 0.1}, {"linformer_attention": "decoder"}, "--quant-noise-scalar does not go with"),
        ({}, {"linformer_k": "65"}, "--linformer-k 65 is larger than --max-source-positions 64"),
    ],
)
def test_other_models_and_those_that_cannot_be_built_are_refused(
    trained: dict[str, object], flags: dict[str, object], said: str
) -> None:
    state = state_of()
    vars(state["cfg"]["model"]).update(trained)
    with pytest.raises(UserError, match=said):
        convert_state(state, PATH, config(**flags))


def test_a_state_of_another_model_is_refused() -> None:
    state = state_of()
    del state["model"]["decoder.layers.1.fc1.weight"]
    with pytest.raises(UserError, match="the checkpoint's tensors are not those of its model"):
        convert_state(state, PATH, config())


def test_files_of_pretrained_words_are_not_needed_any_more() -> None:
    state = state_of()
    state["cfg"]["model"].encoder_embed_path = "gone.txt"
    assert build_model(convert_state(state, PATH, config()))


def test_dictionaries_of_two_sizes() -> None:
    state = state_of(share_all_embeddings=False)
    state["model"]["encoder.embed_tokens.weight"] = torch.zeros(30, 16)
    assert build_model(convert_state(state, PATH, config())).encoder.embed_tokens.num_embeddings == 30
