"""Fairseq builds and runs the masked language model."""

from typing import Any

import pytest
import torch
from fairseq.models.roberta import RobertaModel
from torch import Tensor, nn

from linformer_fairseq.convert.checkpoint import start_as_identity
from linformer_fairseq.modules import KINDS, LinearProjection
from tests.models.toy import SLOTS_FOR_ALL, batch, sentence, small, toy_masked_lm_task, toy_roberta

SMALL = {
    "two-level": {
        "linformer_k": "4",
        "linformer_exact_below": 0,
        "linformer_slot_width": 2,
        "linformer_block_size": 2,
        "linformer_open_slots": 1,
    },
    "window": {"linformer_window_size": 6},
}
"""Settings with which short sentences are not attended to in full."""


def roberta_of(kind: str, **flags: object) -> RobertaModel:
    """Returns a model with a kind of attention that sees less than the whole sentence."""
    return toy_roberta(linformer_projection=kind, **SMALL.get(kind, small(kind)), **flags)


def sentences(*lengths: int) -> list[Tensor]:
    task = toy_masked_lm_task()
    return [sentence(task, length, seed) for seed, length in enumerate(lengths)]


def padded(tokens: list[Tensor], left_pad: bool = False) -> Tensor:
    """Returns the sentences as a batch, (B, n)."""
    return batch(toy_masked_lm_task(), tokens, left_pad)["net_input"]["src_tokens"]


def hidden(model: RobertaModel, tokens: Tensor) -> Tensor:
    """Returns what every layer says of every token and, at last, the features, (B, n, layers, C)."""
    features, extra = model(tokens, features_only=True, return_all_hiddens=True)
    return torch.stack([*(states.transpose(0, 1) for states in extra["inner_states"]), features], 2)


@torch.no_grad()
@pytest.mark.parametrize("width", [0, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_features_depend_on_neither_batch_nor_padding_side(kind: str, width: int) -> None:
    model = roberta_of(kind, linformer_value_convolution=width).double()
    together = sentences(45, 9, 2)
    expected = [hidden(model, tokens[None])[0] for tokens in together]
    for left_pad in (False, True):
        tokens = padded(together, left_pad)
        for row, found, alone in zip(tokens, hidden(model, tokens), expected, strict=True):
            held = row.ne(model.encoder.dictionary.pad())
            torch.testing.assert_close(found[held], alone, rtol=0, atol=1e-9)
    said = torch.stack([features[0, -1] for features in expected])
    assert (said - said[0]).abs().amax(1)[1:].gt(1e-2).all(), "the toy model should not say the same of everything"


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_what_padding_holds_changes_nothing(kind: str) -> None:
    """From the second layer on padding is not zero in fairseq's encoder, but finite."""
    model = roberta_of(kind).double()
    tokens = padded(sentences(45, 9, 2))
    held = tokens.ne(model.encoder.dictionary.pad())
    expected = model(tokens)[0][held]

    def poison(layer: nn.Module, arguments: tuple, options: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
        x, *others = arguments
        return (x.masked_fill(~held.t()[:, :, None], 100.0 if kind == "full" else torch.nan), *others), options

    for layer in model.encoder.sentence_encoder.layers:
        layer.register_forward_pre_hook(poison, with_kwargs=True)
    torch.testing.assert_close(model(tokens)[0][held], expected, rtol=0, atol=1e-9)


@torch.no_grad()
def test_masked_tokens_are_those_that_came() -> None:
    """The head is asked for the tokens at these places of the batch as it came, on whichever side its padding is."""
    model = toy_roberta(linformer_k="4")
    tokens = padded(sentences(20, 9), left_pad=True)
    masked = torch.zeros_like(tokens, dtype=torch.bool)
    masked[0, 3] = masked[1, 15] = True
    torch.testing.assert_close(model(tokens, masked_tokens=masked)[0], model(tokens)[0][masked])


@torch.no_grad()
@pytest.mark.parametrize("left_pad", [False, True])
@pytest.mark.parametrize("length", [20, 31, 32, 60])
def test_two_levels_are_full_attention_below_the_exact_length(length: int, left_pad: bool) -> None:
    """Short sentences get the outputs of fairseq's `roberta` with the same weights, beside long ones too."""
    sizes = {**SMALL["two-level"], "linformer_exact_below": 32}
    roberta, model = toy_roberta("roberta"), toy_roberta("two_level_roberta", random=False, **sizes)
    model.load_state_dict(roberta.state_dict(), strict=True)
    tokens = padded(sentences(length, 9), left_pad)
    logits, expected = (m(tokens)[0] for m in (model, roberta))
    for row, found, wanted in zip(tokens, logits, expected, strict=True):
        held = row.ne(model.encoder.dictionary.pad())
        assert torch.allclose(found[held], wanted[held], rtol=0, atol=1e-4) == (held.sum() < 32)


@torch.no_grad()
@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"encoder_normalize_before": True},
        {"layernorm_embedding": False},
        {"untie_weights_roberta": True},
        {"encoder_layerdrop": 0.5},
        {"activation_fn": "relu"},
        {"checkpoint_activations": True},
        {"encoder_learned_pos": False, "no_scale_embedding": False},
    ],
)
def test_flags_of_roberta_keep_their_meaning(flags: dict[str, object]) -> None:
    """With a slot for every position the model equals `roberta`, whatever its flags."""
    roberta, model = toy_roberta("roberta", **flags), toy_roberta(random=False, **SLOTS_FOR_ALL, **flags)
    start_as_identity(model)
    model.load_state_dict(roberta.state_dict())
    tokens = padded(sentences(20, 20))  # without padding, of which fairseq 0.12.2's fused kernel makes zeros
    torch.testing.assert_close(model(tokens)[0], roberta(tokens)[0], rtol=0, atol=1e-4)


def test_output_and_embeddings_are_tied_as_in_roberta() -> None:
    for untied in (False, True):
        encoder = toy_roberta(untie_weights_roberta=untied).encoder
        assert (encoder.lm_head.weight is encoder.sentence_encoder.embed_tokens.weight) != untied


@pytest.mark.parametrize("kind", KINDS)
def test_training_reaches_all_weights(kind: str) -> None:
    model = roberta_of(kind, linformer_value_convolution=3).train()
    model.register_classification_head("head", num_classes=3)
    tokens = padded(sentences(40, 9))
    loss = model(tokens, masked_tokens=tokens.eq(7))[0].logsumexp(-1).sum()
    (loss + model(tokens, classification_head_name="head")[0].square().sum()).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or "k_proj.bias" in name, name


@pytest.mark.parametrize("kind", ["linear", "two-level"])
def test_weights_start_as_in_bert(kind: str) -> None:
    """Linear layers and embeddings with a deviation of 0.02, as fairseq has them; E and F in their own way."""
    sizes = {"encoder_embed_dim": 64, "encoder_ffn_embed_dim": 64}
    model = toy_roberta(random=False, linformer_projection=kind, **sizes)
    layers = [module for module in model.encoder.sentence_encoder.layers.modules() if isinstance(module, nn.Linear)]
    assert len(layers) == 12
    for layer in layers:
        assert layer.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert not layer.bias.any()
    embeddings = model.encoder.sentence_encoder.embed_tokens.weight
    assert embeddings.std().item() == pytest.approx(0.02, rel=0.2)
    assert not embeddings[model.encoder.dictionary.pad()].any()
    for projection in (module for module in model.modules() if isinstance(module, LinearProjection)):
        assert projection.weight.std().item() > 0.05


def test_longest_text() -> None:
    for flags, longest in (({}, 64), ({"max_positions": None, "tokens_per_sample": 80}, 80)):
        model = toy_roberta(linformer_k="4", **flags)
        assert model.max_positions() == longest
        assert model.encoder.sentence_encoder.layers[0].self_attn.key_projection.max_positions == longest
        with pytest.raises(ValueError, match=f"a text of {longest + 1} tokens is longer than the {longest} that the"):
            model(torch.full((1, longest + 1), 5))


@pytest.mark.parametrize(
    ("flags", "sentence_start"),
    [
        ({"linformer_k": "65"}, "--linformer-k 65 is larger than the longest source, 64 tokens; choose k <= N"),
        ({"linformer_k": "8,4,2"}, "--linformer-k 8,4,2 gives 3 values for 2 layers; give one, or one per layer$"),
        ({"linformer_projection": "fft"}, "--linformer-projection is one of linear, .*, two-level, .*, not 'fft'"),
        ({"linformer_value_convolution": 4}, "--linformer-value-convolution must be an odd number of tokens"),
        (
            {"linformer_window_size": 8},
            "--linformer-window-size 8 has no effect on this attention .linear at encoder.:",
        ),
    ],
)
def test_bad_flags_end_in_one_sentence(flags: dict[str, object], sentence_start: str) -> None:
    with pytest.raises(SystemExit, match=f"^error: {sentence_start}") as error:
        toy_roberta(**{"linformer_k": "4", **flags})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("trained", "now", "sentence_start"),
    [
        ({"linformer_k": "8"}, {}, r"the checkpoint's \S+ has shape \(8, 64\), .* and longest positions th"),
        (
            {},
            {"linformer_projection": "two-level"},
            r"\S+ is in the checkpoint only: give the --linformer-attention, --linformer-projection",
        ),
    ],
)
def test_checkpoints_of_another_model_are_refused(
    trained: dict[str, object], now: dict[str, object], sentence_start: str
) -> None:
    state = toy_roberta(**{"linformer_k": "16", **trained}).state_dict()
    with pytest.raises(SystemExit, match=f"^error: {sentence_start}") as error:
        toy_roberta(**{"linformer_k": "16", **now}).load_state_dict(state)
    assert "\n" not in str(error.value)
