"""Attention is replaced as a whole, or not at all."""

import pytest
import torch
from fairseq.models import FairseqDecoder
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from linformer_fairseq.models.config import AttentionConfig
from linformer_fairseq.models.swap import swap
from linformer_fairseq.modules import KINDS, CausalTwoLevelAttention
from linformer_fairseq.modules.two_level.sizes import DEFAULTS, NEWEST
from tests.models.toy import toy_model, toy_task, toy_words

TWO_LEVELS = AttentionConfig(linformer_projection="two-level")


class ToyDecoder(FairseqDecoder):
    """A decoder that fairseq does not know, which hides the future or not."""

    def __init__(self, is_causal: bool, **options: bool) -> None:
        super().__init__(toy_words())
        self.is_causal = is_causal
        self.self_attn = MultiheadAttention(8, 2, self_attention=True, **options)

    def forward(self, x: Tensor) -> Tensor:
        mask = torch.full((len(x), len(x)), -torch.inf).triu(1) if self.is_causal else None
        out: Tensor = self.self_attn(x, x, x, attn_mask=mask)[0]
        return out

    def max_positions(self) -> int:
        return 64


def test_a_decoder_that_does_not_hide_the_future_is_found_out() -> None:
    """By its mask, as nothing else tells it."""
    x = torch.randn(5, 2, 8)
    for is_causal in (True, False):
        decoder = ToyDecoder(is_causal).eval()
        expected = decoder(x)
        assert swap(decoder, TWO_LEVELS) == {"decoder"}
        assert type(decoder.self_attn) is CausalTwoLevelAttention
        if is_causal:
            torch.testing.assert_close(decoder(x), expected)
            continue
        with pytest.raises(ValueError, match="hides later tokens, and this decoder does not: leave decoder out of"):
            decoder(x)


def test_a_configuration_in_python_is_that_of_a_new_model() -> None:
    model = toy_model("transformer")
    assert swap(model, TWO_LEVELS) == {"encoder", "cross", "decoder"}
    layer = model.decoder.layers[0]
    rules = {"encoder": model.encoder.layers[0].self_attn.rule, "cross": layer.encoder_attn.rule}
    assert {place: rule.defaults for place, rule in rules.items()} == {x: DEFAULTS[NEWEST][x] for x in rules}
    assert layer.self_attn.sizes.clusters


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_attention_without_a_counterpart_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=f"has attention with {option.removeprefix('add_')}, which has no counterpart"):
        swap(ToyDecoder(True, **{option: True}), TWO_LEVELS)


def test_a_refusal_leaves_the_model_as_it_is() -> None:
    """Here that of the decoder, which comes after cross-attention."""
    model = toy_model("transformer", cross_self_attention=True)
    before = {name: type(module) for name, module in model.named_modules()}
    with pytest.raises(ValueError, match="--cross-self-attention does not go with decoder"):
        swap(model, TWO_LEVELS)
    assert {name: type(module) for name, module in model.named_modules()} == before


@pytest.mark.parametrize("kind", ["two-level", "linear"])
def test_layers_that_share_an_attention_share_what_replaces_it(kind: str) -> None:
    model = toy_model("transformer")
    layers = model.encoder.layers
    layers[1].self_attn = layers[0].self_attn
    swap(model, AttentionConfig(linformer_projection=kind, linformer_attention="encoder"))
    assert layers[1].self_attn is layers[0].self_attn
    assert isinstance(layers[0].self_attn, KINDS[kind].attention)


def test_a_model_without_attention_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^Linear has no attention of fairseq's, MultiheadAttention, to replace$"):
        swap(nn.Linear(2, 2), TWO_LEVELS)
    with pytest.raises(ValueError, match="has another attention already: build fairseq's own arch"):
        swap(toy_model(linformer_k="4", task=toy_task(), linformer_attention="encoder,cross,decoder"), TWO_LEVELS)
