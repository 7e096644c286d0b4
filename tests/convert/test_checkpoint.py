"""The state of a checkpoint is converted, or refused."""

import copy
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.models import BaseFairseqModel
from omegaconf import OmegaConf
from torch import Tensor

from linformer_fairseq.checkpoints import model_settings
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.convert.checkpoint import build_model, build_original, convert_state
from linformer_fairseq.convert.families import LANGUAGE_MODEL, family_of
from linformer_fairseq.models.config import AttentionConfig
from linformer_fairseq.models.layers import FAST_PATH_PARAMETERS
from linformer_fairseq.modules import BaseAttention, CausalTwoLevelAttention, TwoLevelAttention
from tests.convert.toy_checkpoints import CUT, config, lm_state_of, state_of
from tests.models.toy import batch, previous_tokens, sentence, toy_model, toy_task

PATH = Path("trained.pt")


def converted(state: dict[str, Any], new: AttentionConfig) -> dict[str, Any]:
    """Returns the state of a converted checkpoint."""
    return convert_state(state, family_of(state, PATH), new)


def outputs(model: BaseFairseqModel, lengths: tuple[int, ...], target: int, seed: int = 0) -> Tensor:
    """Returns what a model gives for each token of one target, for sources of these lengths, padded on the left.

    Without lengths the target is a text of a language model.
    """
    task = toy_task()
    words = sentence(task, target, seed)[None]
    if lengths:
        sources = [sentence(task, length, seed + length) for length in lengths]
        inputs = batch(task, sources, left_pad=True)["net_input"]
        inputs["prev_output_tokens"] = previous_tokens(task, words.expand(len(lengths), -1))
    else:
        inputs = {"src_tokens": previous_tokens(task, words)}
    with torch.no_grad():
        return model(**inputs)[0]


def test_all_three_attentions_are_exact_below_the_exact_length() -> None:
    """Sources of fewer tokens than `--linformer-exact-below`, and as many first tokens of targets, are as before.

    fairseq's cross-attention has a softmax in float32, whatever the model has.
    """
    state = state_of()
    new = converted(state, config(**CUT))
    assert new["cfg"]["model"].linformer_attention == "encoder,cross,decoder"
    model, original = build_model(new).double(), build_original(state).double()
    kinds = [type(module) for module in model.modules() if isinstance(module, BaseAttention)]
    assert kinds == [*[TwoLevelAttention] * 2, *[CausalTwoLevelAttention, TwoLevelAttention] * 2]
    for lengths in ((23,), (23, 9), (1, 17, 5)):
        before, after = (outputs(m, lengths, 40) for m in (original, model))
        torch.testing.assert_close(after[:, :24], before[:, :24], rtol=0, atol=2e-6)
        assert (after[:, 24:] - before[:, 24:]).abs().amax((1, 2)).min() > 1e-3
    longer = [outputs(m, (24,), 24) for m in (original, model)]
    assert (longer[0] - longer[1]).abs().max() > 1e-3


@pytest.mark.parametrize("arch", ["transformer_lm_gpt2_tiny", "transformer_lm_wiki103"])
def test_language_models_are_exact_up_to_the_exact_length(arch: str) -> None:
    """The second architecture has adaptive inputs and outputs, with words in bands."""
    bands = {
        "adaptive_input_cutoff": "5,10",
        "adaptive_softmax_cutoff": "5,10",
        "adaptive_input_factor": 2,
        "adaptive_softmax_factor": 2,
    }
    state = lm_state_of(arch, **(bands if arch.endswith("wiki103") else {}))
    new = converted(state, config(LANGUAGE_MODEL, **CUT))
    assert new["cfg"]["model"]["_name"] == "linformer_transformer_lm"
    model, original = build_model(new).double(), build_original(state).double()
    assert all(isinstance(layer.self_attn, CausalTwoLevelAttention) for layer in model.decoder.layers)
    before, after = (outputs(m, (), 60) for m in (original, model))
    torch.testing.assert_close(after[:, :24], before[:, :24], rtol=0, atol=1e-11)
    assert (after[:, 24:] - before[:, 24:]).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("kind", "arch"), [("two-level", "two_level_transformer"), ("linear", "linformer_transformer")]
)
def test_sentences_of_as_many_tokens_as_slots_are_translated_as_before(kind: str, arch: str) -> None:
    state = state_of()
    cut = {"linformer_exact_below": 0} if kind == "two-level" else {}
    new = converted(state, config(linformer_projection=kind, **cut))
    args = new["cfg"]["model"]
    assert (args.arch, args._name) == (arch, "linformer_transformer")
    model, original = build_model(new), toy_model("transformer")
    before, after = (outputs(m, (8, 3), 8) for m in (original, model))
    torch.testing.assert_close(after, before, rtol=1e-4, atol=1e-4)
    before, after = (outputs(m, (20,), 8) for m in (original, model))
    assert (after - before).abs().max() > 1e-3


def test_what_is_converted_stays_as_it_is() -> None:
    state = state_of()
    kept = copy.deepcopy(state)
    new = converted(state, config(linformer_projection="linear"))
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
    new = converted(hydra, config())
    assert new["cfg"]["model"].linformer_k == "8"
    assert new["cfg"]["task"] == {"data": "here"}
    old = {"args": Namespace(**flat, data="here"), "model": state["model"], "extra_state": {}}
    new = converted(old, config())
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
        assert converted(state, config(linformer_projection=kind))["cfg"]["model"].arch == new


def test_copies_that_fairseq_0_12_2_keeps_are_dropped() -> None:
    state = state_of()
    state["model"] = {**state["model"], "encoder.layers.0.in_proj_weight": torch.zeros(3)}
    assert "encoder.layers.0.in_proj_weight" not in converted(state, config())["model"]


@pytest.mark.parametrize(
    ("trained", "flags", "said"),
    [
        ({"_name": "lstm", "arch": "lstm"}, {}, "trained.pt holds a lstm: name the checkpoint of a"),
        ({"_name": None, "arch": None}, {}, "holds no model of a known name"),
        (
            {},
            {"linformer_k": "65", "linformer_projection": "linear"},
            "--linformer-k 65 is larger than --max-source-positions 64",
        ),
    ],
)
def test_other_models_and_those_that_cannot_be_built_are_refused(
    trained: dict[str, object], flags: dict[str, object], said: str
) -> None:
    state = state_of()
    vars(state["cfg"]["model"]).update(trained)
    with pytest.raises(UserError, match=said):
        converted(state, config(**flags))


def test_learned_projections_are_refused() -> None:
    state = converted(state_of(), config(linformer_projection="linear"))
    with pytest.raises(UserError, match=r"trained.pt has \S+key_projection.weight, which was trained for its own"):
        converted(state, config())


def test_a_state_of_another_model_is_refused() -> None:
    state = state_of()
    del state["model"]["decoder.layers.1.fc1.weight"]
    with pytest.raises(UserError, match="the checkpoint's tensors are not those of its model"):
        converted(state, config())


def test_files_of_pretrained_words_are_not_needed_any_more() -> None:
    state = state_of()
    state["cfg"]["model"].encoder_embed_path = "gone.txt"
    assert build_model(converted(state, config()))


def test_dictionaries_of_two_sizes() -> None:
    state = state_of(share_all_embeddings=False)
    state["model"]["encoder.embed_tokens.weight"] = torch.zeros(30, 16)
    assert build_model(converted(state, config())).encoder.embed_tokens.num_embeddings == 30
