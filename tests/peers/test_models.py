"""Attention of other packages works in encoders, and is refused elsewhere."""

import logging
import math
from argparse import ArgumentParser, Namespace

import pytest
import torch

from linformer_fairseq import LinformerRobertaModel, LinformerTransformerModel
from linformer_fairseq.models.config import AttentionConfig
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import CAUSAL_KINDS, KINDS, CausalWindowAttention, TwoLevelAttention
from tests.convert.toy_checkpoints import CUT, built, converted, roberta_state_of
from tests.models.toy import (
    batch,
    check_scores,
    net_input,
    sentence,
    toy_model,
    toy_roberta,
    toy_task,
    translate,
)
from tests.peers.conftest import PEERS, need_peer

every_peer = pytest.mark.parametrize("kind", PEERS)
SIZES = {
    "longformer": {"linformer_window_size": 8},
    "nystromformer": {"linformer_landmarks": 4},
    "performer": {},
    "reformer": {"linformer_bucket_size": 4, "linformer_hashes": 2},
}
ALONE = ["longformer", "performer"]
"""Those that let no other sentence of the batch in; of the two others the docstrings say that they do."""


@pytest.mark.parametrize("model", [LinformerTransformerModel, LinformerRobertaModel])
def test_options_are_flags(model: type, capsys: pytest.CaptureFixture) -> None:
    parser = ArgumentParser()
    model.add_args(parser)
    parser.print_help()
    said = " ".join(capsys.readouterr().out.split())
    assert "performer (in self-attention alone, of the package performer-pytorch)" in said
    args = parser.parse_args(["--linformer-projection", "performer", "--linformer-features", "16"])
    assert (args.linformer_projection, args.linformer_features) == ("performer", 16)


def test_an_option_is_checked_by_the_kind_that_is_used() -> None:
    """Longformer refuses an odd window, and `window` does not."""
    flags = Namespace(linformer_projection="window", linformer_window_size=5, linformer_attention="encoder")
    assert AttentionConfig.from_namespace(flags).in_model(["encoder"]).linformer_window_size == 5


@every_peer
def test_the_encoder_alone_has_it_by_default(kind: str) -> None:
    model = toy_model(linformer_projection=kind)
    assert {type(layer.self_attn) for layer in model.encoder.layers} == {KINDS[kind].attention}
    assert {type(layer.encoder_attn).__name__ for layer in model.decoder.layers} == {"MultiheadAttention"}
    assert {type(layer.self_attn).__name__ for layer in model.decoder.layers} == {"MultiheadAttention"}
    sizes = {
        "longformer": {"window_size": 256},
        "nystromformer": {"landmarks": 64},
        "performer": {},
        "reformer": {"bucket_size": 64, "hashes": 8},
    }
    attention = model.encoder.layers[0].self_attn
    assert {name: getattr(attention, name) for name in sizes[kind]} == sizes[kind]
    if kind == "performer":
        assert attention.core.nb_features == int(8 * math.log(8))


@every_peer
@torch.no_grad()
def test_translations_do_not_depend_on_the_padding_side(kind: str) -> None:
    """Nor on the batch, where the package lets no other sentence in."""
    task = toy_task()
    model = toy_model(linformer_projection=kind, **SIZES[kind]).double()
    sources = [sentence(task, 45, 2), sentence(task, 9, 1), sentence(task, 2, 3)]
    left, right = (batch(task, sources, left_pad) for left_pad in (True, False))
    encoded = []
    for sample in (left, right):
        torch.manual_seed(1)  # for what is drawn at every call
        out = model.encoder(**sample["net_input"])
        encoded.append(out["encoder_out"][0].transpose(0, 1)[~out["encoder_padding_mask"][0]])
    torch.testing.assert_close(*encoded, rtol=0, atol=1e-12)
    if kind in ALONE:
        alone = model.encoder(**batch(task, sources[1:2], left_pad=False)["net_input"])["encoder_out"][0]
        torch.testing.assert_close(encoded[0][45:54], alone[:, 0], rtol=0, atol=1e-5)
        check_scores(task, [model], sources, translate(task, model, left))


@every_peer
@pytest.mark.parametrize("flags", [{}, {"checkpoint_activations": True}])
def test_training_reaches_all_weights(kind: str, flags: dict) -> None:
    task = toy_task()
    model = toy_model(linformer_projection=kind, **SIZES[kind], **flags).train()
    model(**net_input(task))[0].logsumexp(-1).sum().backward()
    for name, parameter in model.encoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.any() or ("k_proj." if kind == "reformer" else "k_proj.bias") in name, name


@every_peer
def test_a_transformer_loads_into_it(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """What its attention has beyond a Transformer's starts fresh, and is kept from then on."""
    transformer, model = toy_model("transformer"), toy_model(linformer_projection=kind, random=False, **SIZES[kind])
    own = {name: weight.clone() for name, weight in projection_weights(model.state_dict()).items()}
    with caplog.at_level(logging.WARNING):
        model.load_state_dict(transformer.state_dict())
    assert bool(own) == (kind in ("nystromformer", "performer")) == ("start fresh" in caplog.text)
    after = model.state_dict()
    assert all(torch.equal(after[name], weight) for name, weight in [*own.items(), *transformer.named_parameters()])
    again = toy_model(linformer_projection=kind, random=False, **SIZES[kind])
    again.load_state_dict(after)
    inputs = net_input(toy_task(), lengths=(12, 12))
    outs = []
    for translator in (model, again):
        torch.manual_seed(1)  # for what is drawn at every call
        outs.append(translator.eval()(**inputs)[0])
    assert torch.equal(*outs)


def test_a_converted_model_keeps_its_convolution() -> None:
    """Which takes the place of Nyströmformer's."""
    need_peer("nystromformer")
    before = converted(roberta_state_of(), **CUT, linformer_value_convolution=5)
    weights = {key: torch.nn.init.normal_(weight) for key, weight in before["model"].items() if "attn" in key}
    new = converted(before, linformer_projection="nystromformer", linformer_value_convolution=5)
    kept = {key: weight.float() for key, weight in built(new).state_dict().items() if "attn" in key}
    torch.testing.assert_close(kept, weights)


@every_peer
@pytest.mark.parametrize(
    "flags",
    [
        {"linformer_attention": "encoder,cross"},
        {"linformer_attention": "encoder,decoder"},
        {"linformer_attention": "cross,decoder", "linformer_decoder_projection": "linear"},
    ],
)
def test_other_places_are_refused(kind: str, flags: dict) -> None:
    if kind in CAUSAL_KINDS and "cross" not in flags["linformer_attention"]:
        pytest.skip("it has a causal form")
    said = f"^error: --linformer-projection {kind} is not for (cross-attention|causal self-attention of a decoder): "
    with pytest.raises(SystemExit, match=said):
        toy_model(linformer_projection=kind, **flags)


@pytest.mark.parametrize(
    ("kind", "flags", "said"),
    [
        ("longformer", {"linformer_window_size": 5}, "--linformer-window-size of longformer must be even and at least"),
        ("longformer", {"linformer_window_size": 2}, "--linformer-window-size of longformer must be even and at least"),
        ("nystromformer", {"linformer_landmarks": 0}, "--linformer-landmarks must be at least 1, not 0"),
        ("performer", {"linformer_features": 0}, "--linformer-features must be at least 1, not 0"),
        ("reformer", {"linformer_bucket_size": 0}, "--linformer-bucket-size must be at least 1, not 0"),
        ("reformer", {"linformer_hashes": 0}, "--linformer-hashes must be at least 1, not 0"),
        (
            "performer",
            {"linformer_landmarks": 8},
            r"--linformer-landmarks 8 has no effect on this attention .\w+ at encoder.:",
        ),
        (
            "longformer",
            {"linformer_features": 8},
            r"--linformer-features 8 has no effect on this attention .\w+ at encoder.:",
        ),
        ("nystromformer", {"attention_dropout": 0.1}, "nystromformer has no attention probabilities to drop: use --at"),
        ("performer", {"attention_dropout": 0.1}, "performer has no attention probabilities to drop: use --attention-"),
    ],
)
def test_bad_options_end_in_one_sentence(kind: str, flags: dict, said: str) -> None:
    for build in (toy_model, toy_roberta):
        with pytest.raises(SystemExit, match=f"^error: {said}"):
            build(linformer_projection=kind, **flags)


def test_the_decoder_has_kinds_of_its_own() -> None:
    need_peer("performer")
    flags = {"linformer_projection": "performer", "linformer_attention": "encoder,decoder"}
    model = toy_model(**flags, linformer_decoder_projection="window")
    assert {type(layer.self_attn) for layer in model.decoder.layers} == {CausalWindowAttention}
    model = toy_model("two_level_transformer", linformer_encoder_projection="performer", linformer_features=7)
    assert {type(layer.self_attn) for layer in model.encoder.layers} == {KINDS["performer"].attention}
    assert {type(layer.encoder_attn) for layer in model.decoder.layers} == {TwoLevelAttention}
    model = toy_model(**flags)
    assert {type(layer.self_attn) for layer in model.decoder.layers} == {CAUSAL_KINDS["performer"].attention}
    with pytest.raises(
        SystemExit, match=r"^error: --linformer-decoder-projection is one of linear, .*, not 'longformer"
    ):
        toy_model(**flags, linformer_decoder_projection="longformer")


def test_a_decoder_with_performer_scores_but_does_not_search() -> None:
    need_peer("performer")
    task, model = toy_task(), toy_model(linformer_projection="performer", linformer_attention="encoder,decoder")
    assert model(**net_input(task))[0].isfinite().all()
    with pytest.raises(ValueError, match=r"^performer keeps no state for a search"):
        translate(task, model, batch(task, [sentence(task, 9, 1)], left_pad=True))
