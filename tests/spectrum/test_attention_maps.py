"""The maps that are recorded are those that the model computes."""

import pytest
import torch
from fairseq.models.transformer import TransformerModelBase

from linformer_fairseq.spectrum.attention_maps import Attention, find_attentions, recorded_maps
from linformer_fairseq.spectrum.statistics import singular_values
from tests.models.toy import EVERYWHERE, net_input, sentence, toy_model, toy_task


def maps_of(model: TransformerModelBase, length: int) -> dict[Attention, torch.Tensor]:
    with torch.no_grad(), recorded_maps(find_attentions(model)) as maps:
        model(**net_input(toy_task(), [length], target=length + 3))
    return maps


def test_every_attention_of_a_transformer() -> None:
    found = find_attentions(toy_model("transformer"))
    assert [(attention.place, attention.layer) for attention in found] == [
        (place, layer) for place in ("encoder", "cross", "decoder") for layer in (0, 1)
    ]


def test_maps_are_the_softmax_of_each_head() -> None:
    """The first layer's maps equal those computed by hand."""
    model = toy_model("transformer")
    maps = maps_of(model, 6)
    module = model.encoder.layers[0].self_attn
    tokens = net_input(toy_task(), [6])["src_tokens"]
    with torch.no_grad():
        x, _ = model.encoder.forward_embedding(tokens)
        query, key = (linear(x).unflatten(2, (2, -1)).transpose(1, 2) for linear in (module.q_proj, module.k_proj))
        expected = torch.softmax(query @ key.transpose(2, 3) * module.head_dim**-0.5, -1)  # (B, H, n, n)
    found = maps[find_attentions(model)[0]]
    assert found.shape == (2, 1, 6, 6)
    torch.testing.assert_close(found.transpose(0, 1), expected)


def test_maps_of_every_place_have_their_shape_and_sum_to_one() -> None:
    for attention, found in maps_of(toy_model("transformer"), 6).items():
        shapes = {"encoder": (2, 1, 6, 6), "cross": (2, 1, 9, 6), "decoder": (2, 1, 9, 9)}
        assert found.shape == shapes[attention.place]
        torch.testing.assert_close(found.sum(-1), torch.ones(found.shape[:-1]))
        if attention.place == "decoder":
            assert not found.triu(1).any()


def test_every_attention_of_a_masked_language_model() -> None:
    """Two levels are full attention to a short text."""
    full, two_levels = (toy_model(arch, max_positions=64) for arch in ("roberta", "two_level_roberta"))
    two_levels.load_state_dict(full.state_dict())
    tokens, maps = sentence(toy_task(), 9)[None], []
    for model in (full, two_levels):
        attentions = find_attentions(model)
        layers = model.encoder.sentence_encoder.layers
        assert [(a.place, a.layer, a.module) for a in attentions] == [
            ("encoder", layer, layers[layer].self_attn) for layer in (0, 1)
        ]
        with torch.no_grad(), recorded_maps(attentions) as recorded:
            model(tokens)
            maps.append(torch.stack([recorded[attention] for attention in attentions]))
    assert maps[0].shape == (2, 2, 1, 9, 9)
    assert maps[0].std() > 0.01
    torch.testing.assert_close(maps[0].sum(-1), torch.ones(2, 2, 1, 9))
    torch.testing.assert_close(maps[1], maps[0])


def test_slots_bound_the_rank() -> None:
    """A map that goes through three slots has rank three at most, whatever its size."""
    for attention, found in maps_of(toy_model(linformer_k="3"), 8).items():
        values = singular_values(found)
        rank = (values > 1e-5 * values[..., :1]).sum(-1)
        assert rank.max() > 3 if attention.place == "decoder" else rank.max() == 3


@pytest.mark.parametrize("arch", ["transformer", "linformer_transformer"])
def test_the_model_is_left_as_it_was(arch: str) -> None:
    model, inputs = toy_model(arch, linformer_attention=EVERYWHERE).double(), net_input(toy_task())
    before, _ = model(**inputs)
    with recorded_maps(find_attentions(model)) as maps:
        during, _ = model(**inputs)
        assert len(maps) == 6
        maps.clear()
    after, _ = model(**inputs)
    torch.testing.assert_close(during, before, rtol=1e-4, atol=1e-5)
    assert torch.equal(after, before)
    assert not maps
    assert not any(attention.module._forward_hooks for attention in find_attentions(model))
