"""Checkpoints load, start projections fresh, or are refused."""

import io
import logging

import pytest
import torch

from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import CROSS_KINDS
from linformer_fairseq.modules.linformer_attention import SHARINGS
from tests.models.toy import EVERYWHERE, net_input, toy_args, toy_model, toy_task


@pytest.mark.parametrize("sharing", SHARINGS)
def test_save_and_load(sharing: str) -> None:
    """Loading into a model that never trained must not fall back on full attention, as fairseq 0.12.2 would."""
    task, flags = toy_task(), {"linformer_k": "4", "linformer_sharing": sharing, "linformer_attention": EVERYWHERE}
    model, loaded = toy_model(**flags), toy_model(random=False, **flags)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    loaded.load_state_dict(torch.load(buffer), strict=True)
    with torch.no_grad():
        outputs = [m(**net_input(task))[0] for m in (loaded, model)]
    torch.testing.assert_close(*outputs, rtol=0, atol=0)
    if sharing == "layerwise":
        weights = projection_weights(loaded.state_dict())
        assert len(weights) == 12  # E and F, three places, two layers
        assert len({weight.data_ptr() for weight in weights.values()}) == 3


def test_state_is_the_same_on_every_fairseq() -> None:
    names = set(toy_model().state_dict())
    assert not {name for name in names if name.rsplit(".", 1)[-1] in {"in_proj_weight", "fc1_weight", "out_proj_bias"}}


def test_projections_start_fresh_beside_a_transformer(caplog: pytest.LogCaptureFixture) -> None:
    transformer, model = toy_model("transformer"), toy_model(linformer_k="4")
    before = {name: weight.clone() for name, weight in projection_weights(model.state_dict()).items()}
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(transformer.state_dict())
    assert ": key_projection.weight, value_projection.weight start fresh" in caplog.text
    after = model.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert all(torch.equal(after[name], weight) for name, weight in transformer.named_parameters() if name in after)


@pytest.mark.parametrize("kind", ["linear", "two-level"])
def test_a_convolution_starts_fresh_beside_a_model_without(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    flags = {"linformer_projection": kind, "linformer_attention": "encoder"}
    plain = toy_model(**flags)
    model = toy_model(**flags, linformer_value_convolution=5, random=False)
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(plain.state_dict())
    assert [record.getMessage() for record in caplog.records] == [
        "the checkpoint has no convolution over the values: the model's starts fresh"
    ]
    tokens = torch.randint(4, 16, (2, 9))
    out, expected = (x.encoder(tokens, torch.tensor([9, 9]))["encoder_out"][0] for x in (model, plain))
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("kind", [kind for kind in CROSS_KINDS if kind != "full"])
def test_pruned_layers(kind: str) -> None:
    """fairseq's `--encoder-layers-to-keep` takes the projections of the layers that it keeps."""
    flags = {"linformer_projection": kind, "linformer_k": "8,4,2", "linformer_cross_k": "4", "encoder_layers": 3}
    flags["linformer_attention"] = "encoder,cross"
    # fairseq drops the decoder's layers where only the encoder's are named
    keep = {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "0,1"}
    deep, shallow = toy_model(**flags), toy_model(random=False, **flags, **keep)
    shallow.load_state_dict(deep.state_dict(), model_cfg=toy_args(**flags, **keep))
    attention = [layer.self_attn for layer in shallow.encoder.layers]
    own = [getattr(a, "rule", None) or getattr(a, "key_projection", a) for a in attention]
    assert [x.projected_dim for x in own] == [8, 2]
    for ours, theirs in zip(shallow.encoder.layers, (deep.encoder.layers[0], deep.encoder.layers[2]), strict=True):
        for name, weight in ours.state_dict().items():
            assert torch.equal(weight, theirs.state_dict()[name])


def test_projections_start_fresh_beside_a_convolution_that_is_loaded() -> None:
    two_level = {"linformer_projection": "two-level", "linformer_attention": "encoder,cross"}
    trained, model = (toy_model(linformer_value_convolution=5, **flags) for flags in (two_level, {}))
    fresh = model.state_dict()["encoder.layers.0.self_attn.key_projection.weight"].clone()
    model.load_state_dict(trained.state_dict())
    name = "encoder.layers.0.self_attn.value_convolution.weight"
    assert torch.equal(model.state_dict()[name], trained.state_dict()[name])
    assert torch.equal(model.state_dict()["encoder.layers.0.self_attn.key_projection.weight"], fresh)


@pytest.mark.parametrize("sharing", SHARINGS)
def test_columns_beyond_the_longest_text_of_a_checkpoint_start_fresh(
    sharing: str, caplog: pytest.LogCaptureFixture
) -> None:
    """So that texts of that length get what they got."""
    task, flags = toy_task(), {"linformer_k": "4", "linformer_sharing": sharing, "linformer_attention": EVERYWHERE}
    longer = {"max_source_positions": 80, "max_target_positions": 80}
    trained, model = toy_model(**flags), toy_model(random=False, **flags, **longer)
    fresh = {name: weight[:, 64:].clone() for name, weight in projection_weights(model.state_dict()).items()}
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(trained.state_dict())
    assert caplog.messages == ["the checkpoint's E and F are for 64 tokens: their columns for up to 80 start fresh"]
    for name, weight in projection_weights(model.state_dict()).items():
        assert torch.equal(weight[:, :64], trained.state_dict()[name])
        assert torch.equal(weight[:, 64:], fresh[name])
    outputs = [m(**net_input(task))[0] for m in (model, trained)]
    torch.testing.assert_close(*outputs)
    with pytest.raises(SystemExit, match=r"^error: the checkpoint's \S+ has shape \(4, 80\), this model's \(4, 64\)"):
        trained.load_state_dict(model.state_dict())


@pytest.mark.parametrize(
    ("trained", "now", "sentence_start"),
    [
        (
            {"linformer_k": "4"},
            {"linformer_k": "8"},
            r"the checkpoint's \S+ has shape \(4, 64\), this model's \(8, 64\)",
        ),
        ({"linformer_attention": "encoder"}, {}, r"\S+ is in the model only: give the --linformer-attention"),
        ({}, {"linformer_attention": "cross"}, r"\S+ is in the checkpoint only: give the --linformer-attention"),
        (
            {},
            {"linformer_attention": EVERYWHERE},
            r"\S+self_attn\S+ is in the model only: give the --linformer-attention",
        ),
        ({"encoder_layers": 3}, {}, r"\S+ is in the checkpoint only: .* number of layers"),
        (
            {"linformer_attention": "decoder", "linformer_decoder_projection": "linear"},
            {"linformer_attention": "decoder", "linformer_projection": "two-level"},
            r"\S+self_attn\S+ is in the checkpoint only: give the .* .and that of each place., \S+ and",
        ),
        (
            {"linformer_value_convolution": 5},
            {},
            r"\S+value_convolution.weight is in the checkpoint only: give the .* --linformer-value-convolution and",
        ),
        (
            {"linformer_value_convolution": 5},
            {"linformer_value_convolution": 3},
            r"the checkpoint's \S+value_convolution.weight has shape .* give the .* --linformer-value-convolution",
        ),
        ({}, {"linformer_sharing": "key-value"}, r"the checkpoint's \S+ is not shared as in this model"),
        ({}, {"linformer_sharing": "layerwise"}, r"the checkpoint's \S+ is not shared as in this model"),
    ],
)
def test_checkpoints_of_another_model_are_refused(
    trained: dict[str, object], now: dict[str, object], sentence_start: str
) -> None:
    state = toy_model(**trained).state_dict()
    with pytest.raises(SystemExit, match=f"^error: {sentence_start}"):
        toy_model(**now).load_state_dict(state)
