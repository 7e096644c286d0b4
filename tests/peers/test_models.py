"""Attention of other packages works in the encoder of a translation model, and is refused elsewhere."""

import logging

import pytest
import torch

from linformer_fairseq.models.config import LanguageModelAttentionConfig, flag_defaults
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import KINDS, CausalWindowAttention
from tests.models.toy import (
    batch,
    check_scores,
    net_input,
    sentence,
    toy_model,
    toy_task,
    translate,
)
from tests.peers import PEERS, need_peer

every_peer = pytest.mark.parametrize("kind", PEERS)
SIZES = {
    "longformer": {"linformer_window_size": 8},
    "nystromformer": {"linformer_landmarks": 4},
    "performer": {},
    "reformer": {"linformer_bucket_size": 4, "linformer_hashes": 2},
}


@pytest.fixture(autouse=True)
def _installed(request: pytest.FixtureRequest) -> None:
    if "kind" in request.fixturenames:
        need_peer(request.getfixturevalue("kind"))


@every_peer
def test_the_encoder_alone_has_it_by_default(kind: str) -> None:
    model = toy_model(linformer_projection=kind, **SIZES[kind])
    assert {type(layer.self_attn) for layer in model.encoder.layers} == {KINDS[kind].attention}
    assert {type(layer.encoder_attn).__name__ for layer in model.decoder.layers} == {"MultiheadAttention"}
    assert {type(layer.self_attn).__name__ for layer in model.decoder.layers} == {"MultiheadAttention"}
    sizes = {
        "longformer": "window_size=256",
        "nystromformer": "landmarks=64",
        "performer": "features=16",
        "reformer": "bucket_size=64, hashes=8",
    }
    default = toy_model(linformer_projection=kind).encoder.layers[0].self_attn
    assert default.extra_repr().endswith(sizes[kind])


@every_peer
def test_translations_do_not_depend_on_the_padding_side(kind: str) -> None:
    """Nor on the batch, where the package lets no other sentence in."""
    task = toy_task()
    model = toy_model(linformer_projection=kind, **SIZES[kind]).double()
    sources = [sentence(task, 45, 2), sentence(task, 9, 1), sentence(task, 2, 3)]
    left, right = (batch(task, sources, left_pad) for left_pad in (True, False))
    encoded = []
    for sample in (left, right):
        torch.manual_seed(1)  # for what is drawn at every call
        encoded.append(model.encoder(**sample["net_input"])["encoder_out"][0])
    torch.testing.assert_close(*encoded, rtol=0, atol=0)
    if kind not in ("nystromformer", "reformer"):
        alone = model.encoder(**batch(task, sources[1:2], left_pad=False)["net_input"])["encoder_out"][0]
        torch.testing.assert_close(encoded[0][:9, 1:2], alone, rtol=0, atol=1e-5)
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


@every_peer
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"linformer_attention": "encoder,cross"}, "{kind} is for the encoder's self-attention alone: use --linformer"),
        ({"linformer_attention": "encoder,decoder"}, "{kind} is for the encoder's self-attention alone"),
        (
            {"linformer_attention": "cross,decoder", "linformer_decoder_projection": "linear"},
            "{kind} is for the encoder's self-attention alone: use --linformer-attention encoder",
        ),
        (
            {"linformer_decoder_projection": "{kind}"},
            "--linformer-decoder-projection is one of linear, .*, not '{kind}",
        ),
    ],
)
def test_refusals(kind: str, flags: dict, said: str) -> None:
    flags = {name: value.format(kind=kind) for name, value in flags.items()}
    with pytest.raises(SystemExit, match=f"^error: {said.format(kind=kind)}"):
        toy_model(linformer_projection=kind, **flags)


@pytest.mark.parametrize("kind", ["nystromformer", "performer"])
def test_attention_dropout_is_refused_where_there_is_nothing_to_drop(kind: str) -> None:
    with pytest.raises(SystemExit, match=f"^error: {kind} has no attention probabilities to drop: use --attention-dro"):
        toy_model(linformer_projection=kind, attention_dropout=0.1)


@pytest.mark.parametrize("kind", ["performer"])
def test_the_decoder_may_have_a_kind_of_its_own(kind: str) -> None:
    flags = {"linformer_attention": "encoder,decoder", "linformer_decoder_projection": "window"}
    model = toy_model(linformer_projection=kind, **flags)
    assert {type(layer.self_attn) for layer in model.decoder.layers} == {CausalWindowAttention}


def test_language_models_do_not_offer_them() -> None:
    flags = flag_defaults(LanguageModelAttentionConfig)
    assert "linformer_window_size" in flags
    others = {"landmarks", "features", "window_ratio", "bucket_size", "hashes"}
    assert not {f"linformer_{name}" for name in others} & flags.keys()
    with pytest.raises(ValueError, match="--linformer-projection is one of linear, two-level, window, not 'performer'"):
        LanguageModelAttentionConfig.from_namespace(LanguageModelAttentionConfig(linformer_projection="performer"))
