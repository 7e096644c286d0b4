"""Checkpoints of all kinds of models are converted, to another attention and back, or refused."""

import copy
from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf
from torch import Tensor

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.convert.building import build_model, build_original
from linformer_fairseq.convert.checkpoint import (
    architecture_of,
    new_attention,
    to_fairseq,
    with_settings,
)
from linformer_fairseq.models.config import PLACES
from linformer_fairseq.models.swap import FAST_PATH_PARAMETERS
from linformer_fairseq.modules import BaseAttention, CausalTwoLevelAttention, TwoLevelAttention
from linformer_fairseq.modules.two_level.sizes import NEWEST
from tests.convert.toy_checkpoints import CUT, PATH, built, converted, lm_state_of, roberta_state_of, state_of
from tests.models.toy import EVERYWHERE, batch, previous_tokens, sentence, toy_roberta, toy_task

STATES = {"transformer": state_of, "transformer_lm": lm_state_of, "roberta": roberta_state_of}
every = pytest.mark.parametrize("name", STATES)
LINEAR = {"linformer_projection": "linear", "linformer_k": "8"}


@torch.no_grad()
def outputs(model: Any, *lengths: int, target: int = 8) -> list[Tensor]:
    """Returns what a model gives for the tokens of texts of these lengths in one batch; of a translation model, for
    those of one target of `target` tokens."""
    task = toy_task()
    translates = hasattr(model, "encoder") and hasattr(model, "decoder")
    inputs = batch(task, [sentence(task, length, length) for length in lengths], left_pad=translates)["net_input"]
    if translates:
        inputs["prev_output_tokens"] = previous_tokens(task, sentence(task, target)[None].expand(len(lengths), -1))
    found = model(**inputs)[0]
    return list(found) if translates else [row[:length] for row, length in zip(found, lengths, strict=True)]


def farthest(one: Any, other: Any, *lengths: int, **options: int) -> float:
    pairs = zip(outputs(one, *lengths, **options), outputs(other, *lengths, **options), strict=True)
    return max((before - after).abs().max().item() for before, after in pairs)


@every
def test_outputs_are_exact_below_the_exact_length(name: str) -> None:
    """Two levels are in all places unless told otherwise. fairseq's cross-attention has a softmax in float32, whatever
    the model has."""
    state = STATES[name]()
    new = converted(state, **CUT)
    model, original = built(new), built(with_settings(state, PATH))
    kinds = {type(module) for module in model.modules() if isinstance(module, BaseAttention)}
    expected = {"transformer_lm": {CausalTwoLevelAttention}, "roberta": {TwoLevelAttention}}
    assert kinds == expected.get(name, {TwoLevelAttention, CausalTwoLevelAttention})
    for lengths in ((23,), (23, 9), (1, 17, 5)):
        assert farthest(original, model, *lengths, target=24) < 2e-6
    assert farthest(original, model, 60) > 1e-3
    if name == "transformer":
        assert farthest(original, model, 8, target=40) > 1e-3


@every
def test_full_attention_is_exact_at_all_lengths(name: str) -> None:
    before, after = with_settings(STATES[name](), PATH), converted(STATES[name](), linformer_projection="full")
    assert farthest(built(before), built(after), 60, 7) < 2e-6


@every
def test_names_and_settings(name: str) -> None:
    """Those of fairseq's architecture and of the new kind, which names the architecture where there is one."""
    arch, has_dataclass = architecture_of(STATES[name]()), name == "transformer_lm"
    prefixes = {"two-level": "two_level_", "full": "full_", "linear": "linformer_", "window": "linformer_"}
    for kind, prefix in prefixes.items():
        new = converted(STATES[name](), linformer_projection=kind)
        settings = model_settings(new)
        assert settings._name == (f"linformer_{name}" if has_dataclass else prefix + arch)
        assert getattr(settings, "arch", None) == (None if has_dataclass else prefix + arch)
        assert type(new["cfg"]["model"]) is (dict if has_dataclass else Namespace)
        assert settings.linformer_projection == kind
        assert set(settings.linformer_attention.split(",")) <= set(PLACES)


@pytest.mark.parametrize("flags", [LINEAR, {**CUT, "linformer_exact_below": 0}])
def test_sentences_of_as_many_tokens_as_slots_are_translated_as_before(flags: dict[str, object]) -> None:
    original = built(with_settings(state_of(), PATH))
    model = built(converted(state_of(), **flags, linformer_attention=EVERYWHERE))
    assert farthest(original, model, 4, 3, target=4) < 1e-4
    assert farthest(original, model, 20) > 1e-3


def test_adaptive_inputs_have_words_in_bands() -> None:
    bands = {f"adaptive_{part}_cutoff": "5,10" for part in ("input", "softmax")}
    state = lm_state_of("transformer_lm_wiki103", **bands, adaptive_input_factor=2, adaptive_softmax_factor=2)
    assert farthest(built(with_settings(state, PATH)), built(converted(state, **CUT)), 24) < 1e-11


def test_what_this_package_adds_gives_way_to_what_it_extends() -> None:
    """Its own architectures of fairseq's models, its tasks, and its flags in parts that have those of all."""
    state = converted(roberta_state_of())
    state["cfg"]["model"].arch = state["cfg"]["model"]._name = "two_level_roberta_tiny"
    state["cfg"]["criterion"] = Namespace(arch="two_level_roberta_tiny", linformer_k="4", label_smoothing=0.1)
    task = {"_name": "document_translation", "part_tokens": 5}
    known = {"data": "here", "source_lang": "en"}
    state["cfg"]["task"] = {**dict.fromkeys(translation_flags()), **task, **known}
    back = to_fairseq(with_settings(state, PATH), PATH)
    assert architecture_of(back) == "roberta"
    assert back["cfg"]["criterion"] == Namespace(arch="roberta", label_smoothing=0.1)
    assert back["cfg"]["task"] == {**dict.fromkeys(translation_flags()), **known, "_name": "translation"}


def translation_flags() -> list[str]:
    from fairseq.tasks.translation import TranslationConfig

    return list(TranslationConfig.__dataclass_fields__)


def test_what_is_converted_stays_as_it_is() -> None:
    state = state_of()
    before = copy.deepcopy(state)
    new = converted(state, **LINEAR)
    assert vars(state["cfg"]["model"]) == vars(before["cfg"]["model"])
    assert state["model"].keys() == before["model"].keys()
    weights = {name: w for name, w in before["model"].items() if name.rpartition(".")[2] not in FAST_PATH_PARAMETERS}
    kept = {name: new["model"][name] for name in weights}
    torch.testing.assert_close(kept, weights, rtol=0, atol=0, equal_nan=True)  # 0.12.2 leaves a tensor unset
    added = {name: tuple(tensor.shape) for name, tensor in new["model"].items() if name not in before["model"]}
    assert added == {
        f"{side}.layers.{layer}.{attention}.{name}_projection.weight": (8, 64)
        for side, attention in (("encoder", "self_attn"), ("decoder", "encoder_attn"))
        for layer in (0, 1)
        for name in ("key", "value")
    }


def test_flags_of_the_new_attention() -> None:
    """Those given, empty slots of learned projections masked, and a convolution over the values kept."""
    state, model = with_settings(state_of(), PATH), built(state_of())
    for flags in ({"linformer_projection": "two-level"}, {"linformer_projection": "conv", "linformer_k": "8"}):
        told, config = new_attention(state, flags, model)
        assert told == flags
        assert config.linformer_sizes == NEWEST  # as a command line without this flag has it
    flags, config = new_attention(state, LINEAR, model)
    assert flags == {**LINEAR, "linformer_mask_empty_slots": True}
    assert config.linformer_mask_empty_slots
    assert config.places == {"encoder", "cross"}
    before = converted(roberta_state_of(), **CUT, linformer_value_convolution=5)
    for key, weight in before["model"].items():
        if "value_convolution" in key:
            torch.nn.init.normal_(weight)
    new = converted(before, linformer_projection="linear", linformer_k="16")
    assert architecture_of(new) == "linformer_roberta"
    model, original = built(new), built(before)
    assert farthest(original, model, 16) < 2e-6, "k tokens of an identity start, and the convolution"
    assert farthest(original, model, 17) > 1e-3
    with pytest.raises(UserError, match=r"^the encoder has a convolution over 5 values: leave out --linformer-value"):
        converted(before, linformer_projection="full", linformer_value_convolution=0)
    before = with_settings(converted(state_of(), linformer_value_convolution=5), PATH)
    with pytest.raises(UserError, match=r"^the encoder has a convolution over 5 values, .*: name encoder in --"):
        converted(before, linformer_projection="full", linformer_attention="cross")


def test_checkpoints_of_hydra() -> None:
    state = state_of()
    flat = vars(state["cfg"]["model"])
    hydra = {**state, "cfg": OmegaConf.create({"model": flat, "task": {"data": "here"}})}
    new = converted(hydra)
    assert model_settings(new).linformer_k == "8"
    assert new["cfg"]["task"] == {"data": "here"}


@every
def test_checkpoints_of_fairseq_before_0_10(name: str) -> None:
    """They have all flags in one namespace, which becomes a configuration."""
    state = STATES[name]()
    settings = model_settings(state)
    task = state["cfg"]["task"]["_name"]
    settings.arch, settings.task, settings.data = architecture_of(state), task, "here"
    del settings._name
    old = {"args": settings, "model": state["model"], "extra_state": {}}
    new = converted(old, **CUT)
    assert new["args"] is None
    task = new["cfg"]["task"]
    assert (task.data if isinstance(task, Namespace) else task["data"]) == "here"
    assert farthest(built(with_settings(state, PATH)), built(new), 23) < 1e-5
    settings.criterion = "mine"
    with pytest.raises(UserError, match=r"trained.pt has settings that fairseq cannot read .*mine.*: give --user-dir"):
        converted(old)


def test_names_of_old_fairseqs_become_those_of_today() -> None:
    """fairseq before 0.10 called RoBERTa's encoder a decoder, and before 0.8 had one tensor for Q, K and V."""
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
    new = converted({**state, "model": old}, **CUT)
    assert {*new["model"]} == {*converted(state, **CUT)["model"]}
    for model in (built(new), built(with_settings({**state, "model": old}, PATH))):
        assert farthest(built(with_settings(state, PATH)), model, 23) < 1e-4


def test_heads_for_classification_stay() -> None:
    state, task = roberta_state_of(), toy_task()
    trained = toy_roberta("roberta")
    trained.register_classification_head("topics", num_classes=3, inner_dim=5)
    new = converted({**state, "model": trained.state_dict()}, **CUT)
    tokens = sentence(task, 12)[None]
    with torch.no_grad():
        before, after = (m(tokens, classification_head_name="topics")[0] for m in (trained.eval().double(), built(new)))
    assert before.shape == (1, 3)
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-5)


def test_architectures_of_plugins_become_those_of_their_models() -> None:
    state = state_of()
    state["cfg"]["model"].arch = "transformer_mine"
    assert architecture_of(converted(state)) == "two_level_transformer"
    assert architecture_of(to_fairseq(with_settings(converted(state), PATH), PATH)) == "transformer"


def test_copies_that_fairseq_0_12_2_keeps_are_dropped() -> None:
    state = state_of()
    state["model"] = {**state["model"], "encoder.layers.0.in_proj_weight": torch.zeros(3)}
    assert "encoder.layers.0.in_proj_weight" not in converted(state)["model"]


def test_files_of_pretrained_words_are_not_needed_any_more() -> None:
    state = state_of()
    state["cfg"]["model"].encoder_embed_path = "gone.txt"
    assert built(converted(state))


def test_dictionaries_of_two_sizes() -> None:
    state = state_of(share_all_embeddings=False)
    state["model"]["encoder.embed_tokens.weight"] = torch.zeros(30, 16)
    assert built(converted(state)).encoder.embed_tokens.num_embeddings == 30


@pytest.mark.parametrize(
    ("trained", "flags", "said"),
    [
        ({"_name": "lstm", "arch": "lstm"}, {}, r"^trained.pt holds a lstm: name the checkpoint of a model that has"),
        ({"_name": "mine", "arch": "mine"}, {}, "^trained.pt holds a mine: name .*, and the --user-dir of its plugin"),
        ({"_name": None, "arch": None}, {}, "holds no model of a known name"),
        ({}, {**LINEAR, "linformer_k": "65"}, "--linformer-k 65 is larger than the longest source, 64 tokens"),
        ({}, {"linformer_k": "many"}, "--linformer-k takes a whole number"),
        ({}, {"linformer_attention": "middle"}, "--linformer-attention knows encoder, cross and decoder"),
        (
            {"encoder_embed_dim": 8},
            {},
            "fairseq needs more than a checkpoint to build a transformer .* name its --data",
        ),
        ({"encoder_ffn_embed_dim": 8}, {}, "the checkpoint's tensors are not those of its model"),
    ],
)
def test_other_models_and_those_that_cannot_be_built_are_refused(
    trained: dict[str, object], flags: dict[str, object], said: str
) -> None:
    state = state_of()
    vars(state["cfg"]["model"]).update(trained)
    with pytest.raises(UserError, match=said):
        converted(state, **flags)


def test_attention_with_weights_of_its_own_is_refused() -> None:
    with pytest.raises(UserError, match=r"trained.pt has \S+key_projection.weight, which was trained for its own"):
        converted(converted(state_of(), **LINEAR))
    state = with_settings(converted(state_of(), linformer_value_convolution=3), PATH)
    with pytest.raises(
        UserError, match=r"trained.pt has \S+value_convolution.weight, for which fairseq's model has no"
    ):
        to_fairseq(state, PATH)
    with pytest.raises(UserError, match=r"trained.pt is of fairseq's own model already: leave out --to-fairseq"):
        to_fairseq(with_settings(state_of(), PATH), PATH)


def test_a_model_that_came_back_goes_through_torchscript() -> None:
    state = to_fairseq(with_settings(converted(state_of(), linformer_projection="full"), PATH), PATH)
    model = build_model(state, build_original(state).task)
    assert type(model) is ARCH_MODEL_REGISTRY["transformer"]
    inputs = {**batch(toy_task(), [sentence(toy_task(), 9)], left_pad=True)["net_input"]}
    inputs["prev_output_tokens"] = previous_tokens(toy_task(), sentence(toy_task(), 5)[None])
    scripted = torch.jit.script(model)
    torch.testing.assert_close(scripted(**inputs)[0], model(**inputs)[0], rtol=1e-5, atol=1e-5)
