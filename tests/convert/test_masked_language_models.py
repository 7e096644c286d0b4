"""Masked language models are converted."""

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq.models.roberta import RobertaModel
from torch import Tensor

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.convert.checkpoint import build_model, build_original, convert_state, vocabulary_sizes
from linformer_fairseq.convert.families import MASKED_LANGUAGE_MODEL, family_of
from linformer_fairseq.modules import TwoLevelAttention
from tests.convert.toy_checkpoints import CUT, config, roberta_state_of
from tests.models.toy import batch, sentence, toy_model, toy_task

LINEAR = {"linformer_projection": "linear"}


def converted(state: dict[str, Any], **flags: object) -> dict[str, Any]:
    """Returns the state of a converted checkpoint."""
    return convert_state(state, family_of(state, Path("trained.pt")), config(MASKED_LANGUAGE_MODEL, **flags))


@torch.no_grad()
def predictions(model: RobertaModel, *lengths: int) -> list[Tensor]:
    """Returns what a model gives for each token of texts of these lengths, in one batch padded on the right."""
    task = toy_task()
    tokens = batch(task, [sentence(task, length, length) for length in lengths], left_pad=False)["net_input"]
    found, _ = model(**tokens)
    return [row[:length] for row, length in zip(found, lengths, strict=True)]


def farthest(one: RobertaModel, other: RobertaModel, *lengths: int) -> float:
    pairs = zip(predictions(one, *lengths), predictions(other, *lengths), strict=True)
    return max((before - after).abs().max().item() for before, after in pairs)


def test_a_model_of_this_package_keeps_its_convolution() -> None:
    before = converted(roberta_state_of(), **CUT, linformer_value_convolution=5)
    for key, weight in before["model"].items():
        if "value_convolution" in key:
            torch.nn.init.normal_(weight)
    new = converted(before, **family_kept(before), **LINEAR, linformer_k="16")
    assert new["cfg"]["model"].arch == "linformer_roberta"
    model, original = build_model(new).double(), build_original(before).double()
    assert farthest(original, model, 16) < 2e-6, "k tokens of an identity start, and the convolution"
    assert farthest(original, model, 17) > 1e-3


def family_kept(state: dict[str, Any]) -> dict[str, Any]:
    return MASKED_LANGUAGE_MODEL.kept(model_settings(state))


def test_outputs_are_exact_below_the_exact_length() -> None:
    state = roberta_state_of()
    new = converted(state, **CUT)
    settings = new["cfg"]["model"]
    assert (settings._name, settings.arch) == ("linformer_roberta", "two_level_roberta")
    assert new["model"].keys() == build_model(new).state_dict().keys()
    model, original = build_model(new).double(), build_original(state).double()
    assert all(isinstance(layer.self_attn, TwoLevelAttention) for layer in model.encoder.sentence_encoder.layers)
    for lengths in ((23,), (23, 9), (5, 17, 1)):
        assert farthest(original, model, *lengths) < 2e-6
    for length in (24, 64):
        assert farthest(original, model, length) > 1e-3


def test_heads_for_classification_stay() -> None:
    state, task = roberta_state_of(), toy_task()
    trained = toy_model("roberta", max_positions=64)
    trained.register_classification_head("topics", num_classes=3, inner_dim=5)
    state["model"] = trained.state_dict()
    new = converted(state, **CUT)
    assert {"classification_heads.topics.dense.weight", "classification_heads.topics.out_proj.bias"} <= {*new["model"]}
    tokens = sentence(task, 12)[None]
    with torch.no_grad():
        before, after = (
            model(tokens, classification_head_name="topics")[0] for model in (trained.eval(), build_model(new))
        )
    assert before.shape == (1, 3)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


def test_names_of_old_fairseqs_become_those_of_today() -> None:
    """fairseq before 0.10 called the encoder a decoder, and before 0.8 had one tensor for Q, K and V."""
    state = roberta_state_of()
    old = {}
    for name, tensor in state["model"].items():
        module, _, kind = name.rpartition(".")
        if name.endswith((".q_proj.weight", ".q_proj.bias")):
            parts = [state["model"][f"{module[:-6]}{letter}_proj.{kind}"] for letter in "qkv"]
            name, tensor = f"{module[:-6]}in_proj_{kind}", torch.cat(parts)
        elif ".k_proj." in name or ".v_proj." in name or name.endswith(".version"):
            continue
        old[name.replace("layernorm_embedding", "emb_layer_norm").replace("encoder.", "decoder.", 1)] = tensor
    assert "decoder.sentence_encoder.layers.0.self_attn.in_proj_weight" in old
    flags = {**vars(state["cfg"]["model"]), "task": "masked_lm"}
    trained = {"args": Namespace(**flags), "model": old, "extra_state": {}}
    assert vocabulary_sizes(old) == (len(toy_task().source_dictionary),) * 2
    new = converted(trained, **CUT)
    assert new["args"].arch == "two_level_roberta"
    assert {*new["model"]} == {*converted(state, **CUT)["model"]}
    for model in (build_model(new), build_original(trained)):
        assert farthest(build_original(state), model, 23) < 1e-4
