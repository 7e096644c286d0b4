"""Flags build the model that they describe, or are refused."""

from argparse import ArgumentParser, Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModelBase
from fairseq.modules import MultiheadAttention

from linformer_fairseq import (
    CausalLinformerAttention,
    LinformerMultiheadAttention,
    LinformerTransformerModel,
    TwoLevelAttention,
)
from linformer_fairseq.models.config import default_flags
from linformer_fairseq.modules import (
    CAUSAL_KINDS,
    CROSS_KINDS,
    KINDS,
    BaseAttention,
    CausalTwoLevelAttention,
    LinearProjection,
)
from linformer_fairseq.modules.registry import KINDS_AT
from linformer_fairseq.modules.two_level.sizes import DEFAULTS, EXACT_BELOW, NEWEST
from tests.models.toy import EVERYWHERE, SIZES, net_input, toy_model, toy_task

TWO_LEVELS = {"linformer_projection": "two-level"}


def dims(layers: list, name: str = "self_attn") -> list[int]:
    """Returns the k of every layer."""
    attention = [getattr(layer, name) for layer in layers]
    return [getattr(a, "key_projection", a).projected_dim for a in attention]


@pytest.mark.parametrize(
    ("arch", "flags", "two_level"),
    [
        ("linformer_transformer", {}, False),
        ("two_level_transformer", {}, True),
        ("linformer_transformer", {"linformer_projection": "two-level"}, True),
        ("two_level_transformer", {"linformer_projection": "linear"}, False),
        # as checkpoints recorded it when two levels were the default of this architecture
        ("linformer_transformer", {"linformer_projection": "two-level", "linformer_window": None}, True),
        ("linformer_transformer", {"linformer_projection": "linear", "linformer_window": 0}, False),
    ],
)
@pytest.mark.parametrize("recorded", [False, True])
def test_an_architecture_is_a_kind_by_default(arch: str, flags: dict, two_level: bool, recorded: bool) -> None:
    """Two levels are the kind of the decoder, too. Older checkpoints keep their sizes."""
    args = Namespace(**SIZES, arch=arch, linformer_k="9", linformer_attention=EVERYWHERE, **flags)
    if recorded:
        args._name = arch  # as in a checkpoint, which here does not know --linformer-sizes
    ARCH_CONFIG_REGISTRY[arch](args)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, toy_task())
    assert model.unrecorded == ({"linformer_sizes": 1} if recorded and two_level else {})
    model.train()  # which is refused to fairseq's trainer alone
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    for attention in (encoder.self_attn, decoder.encoder_attn):
        assert type(attention) is (TwoLevelAttention if two_level else LinformerMultiheadAttention)
    if two_level:
        defaults = DEFAULTS[1 if recorded else NEWEST]
        rules = [attention.rule for attention in (encoder.self_attn, decoder.encoder_attn)]
        assert [(rule.projected_dim, rule.defaults, rule.exact_below) for rule in rules] == [
            (9, defaults["encoder"], EXACT_BELOW),
            (9, defaults["cross"], EXACT_BELOW),
        ]
        assert type(decoder.self_attn) is CausalTwoLevelAttention
        assert decoder.self_attn.sizes.width == 8  # at most 9 windows of 64 tokens
    else:
        projections = encoder.self_attn.key_projection, encoder.self_attn.value_projection
        assert all(type(projection) is LinearProjection for projection in projections)
        assert projections[0] is not projections[1]
        assert not projections[0].masks_empty_slots
        assert type(decoder.self_attn) is CausalLinformerAttention
        assert decoder.self_attn.window == 0
        assert dims(model.encoder.layers) == dims(model.decoder.layers, "encoder_attn") == [9, 9]
        assert dims(model.decoder.layers) == [9, 9]


@pytest.mark.parametrize("window", [None, 0, 3])
def test_the_decoder_may_have_a_kind_of_its_own(window: int | None) -> None:
    """Beside two levels alone, causal Linformer attention spends half of its k on a window unless told otherwise."""
    flags = {"linformer_attention": EVERYWHERE, "linformer_k": "9"} | (
        {} if window is None else {"linformer_window": window}
    )
    linear = toy_model("two_level_transformer", linformer_decoder_projection="linear", **flags).decoder.layers[0]
    assert type(linear.encoder_attn) is TwoLevelAttention
    assert type(linear.self_attn) is CausalLinformerAttention
    expected = 4 if window is None else window
    assert linear.self_attn.window == expected
    assert linear.self_attn.key_projection.projected_dim == 9 - expected
    cross = {"linformer_cross_projection": "linear", "linformer_decoder_projection": "linear"}
    beside_linear = toy_model("two_level_transformer", **flags, **cross).decoder.layers[0]
    assert beside_linear.self_attn.window == (window or 0)


@pytest.mark.parametrize(("place", "name"), [(place, name) for place, kinds in KINDS_AT.items() for name in kinds])
def test_every_place_may_have_a_kind_of_its_own(place: str, name: str) -> None:
    """The others have that of the architecture."""
    found = attention_of(toy_model("two_level_transformer", **{f"linformer_{place}_projection": name}))
    expected = {where: kinds[name if where == place else "two-level"].attention for where, kinds in KINDS_AT.items()}
    assert {where: type(attention) for where, attention in found.items()} == expected


def test_options_are_for_each_place_whose_kind_has_them() -> None:
    flags = {"linformer_encoder_projection": "window", "linformer_cross_projection": "key-clusters"}
    flags |= {"linformer_decoder_projection": "window", "linformer_window_size": 5, "linformer_cross_k": "9"}
    found = attention_of(toy_model(linformer_attention=EVERYWHERE, **flags))
    sizes = found["encoder"].window_size, found["cross"].clusters, found["decoder"].window_size
    assert sizes == (5, 8, 5)


def attention_of(model: TransformerModelBase) -> dict[str, BaseAttention]:
    """Returns the attention of the last layers by its place."""
    decoder = model.decoder.layers[-1]
    return {"encoder": model.encoder.layers[-1].self_attn, "cross": decoder.encoder_attn, "decoder": decoder.self_attn}


def test_two_levels_take_their_sizes_from_flags() -> None:
    sizes = {"open_slots": 2, "slot_width": 3, "block_size": 4, "exact_below": 5}
    model = toy_model("two_level_transformer", **{f"linformer_{name}": size for name, size in sizes.items()})
    rule = model.encoder.layers[1].self_attn.rule
    assert {name: getattr(rule, name) for name in sizes} == sizes
    assert model.decoder.layers[1].self_attn.sizes == (3, 2, 6, 2)  # blocks are whole windows
    assert model.decoder.layers[1].self_attn.exact == 12


def test_every_attention_is_projected_where_it_is_asked_for() -> None:
    for places in ("encoder", "cross", "decoder", "encoder,cross", EVERYWHERE):
        model = toy_model(linformer_attention=places, linformer_k="4", max_target_positions=32)
        for place, attention in attention_of(model).items():
            assert isinstance(attention, BaseAttention) == (place in places.split(","))
            assert isinstance(attention, MultiheadAttention)
            if isinstance(attention, BaseAttention):
                assert attention.causal == (place == "decoder")
                assert attention.max_positions == (32 if place == "decoder" else 64)


def test_each_place_and_layer_may_have_a_k_of_its_own() -> None:
    """A list may be a comma list or a list from YAML."""
    for k, decoder_k, cross_k, places in (("8,4", "3,2", "5", EVERYWHERE), ([8, 4], [3, 2], 5, EVERYWHERE.split(","))):
        own = {"linformer_decoder_k": decoder_k, "linformer_cross_k": cross_k}
        model = toy_model(linformer_k=k, linformer_attention=places, **own)
        assert dims(model.encoder.layers) == [8, 4]
        assert dims(model.decoder.layers, "encoder_attn") == [5, 5]
        assert dims(model.decoder.layers) == [3, 2]


def test_the_window_is_a_part_of_k() -> None:
    for window, slots in ((0, [8, 3]), (2, [6, 1]), (None, [8, 3])):
        flags = {"linformer_attention": "decoder", "linformer_window": window}
        assert dims(toy_model(linformer_k="8,3", **flags).decoder.layers) == slots


@pytest.mark.parametrize(("sharing", "matrices"), [("headwise", 12), ("key-value", 6), ("layerwise", 1)])
def test_sharing_decides_how_many_matrices_a_place_has(sharing: str, matrices: int) -> None:
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    flags = {"linformer_k": "4", "linformer_attention": EVERYWHERE, "linformer_sharing": sharing}
    model = toy_model(encoder_layers=6, decoder_layers=6, **heads, **flags)
    for layers, attention in (
        (model.encoder, "self_attn"),
        (model.decoder, "encoder_attn"),
        (model.decoder, "self_attn"),
    ):
        weights = {
            p for name, p in layers.named_parameters() if f"{attention}." in name and "projection.weight" in name
        }
        assert len(weights) == matrices


def test_frozen_projections_do_not_train() -> None:
    model = toy_model(linformer_freeze_projection=True, linformer_attention=EVERYWHERE)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    learned = {name for name, _ in model.named_parameters() if "_projection.weight" in name and "layers" in name}
    assert frozen == learned
    assert len(frozen) == 12


@pytest.mark.parametrize("kind", [kind for kind in CROSS_KINDS if kind not in CAUSAL_KINDS])
def test_other_kinds_leave_the_decoder_linear(kind: str) -> None:
    flags = {"linformer_projection": kind, "linformer_attention": EVERYWHERE, "linformer_mask_empty_slots": True}
    model = toy_model(linformer_k="4", **flags)
    assert type(model.encoder.layers[0].self_attn) is KINDS[kind].attention
    assert type(model.decoder.layers[0].encoder_attn) is KINDS[kind].attention
    assert type(model.decoder.layers[0].self_attn) is CausalLinformerAttention
    assert model.decoder.layers[0].self_attn.key_projection.masks_empty_slots


def test_every_flag_has_a_help_text() -> None:
    parser = ArgumentParser()
    LinformerTransformerModel.add_args(parser)
    ours = {action.dest: action.help for action in parser._actions if action.dest.startswith("linformer")}
    assert ours.keys() == default_flags("linear").keys()
    assert len(ours) >= 11
    assert all(ours.values())
    assert {"--encoder-layers", "--max-source-positions"} <= set(parser._option_string_actions)


@pytest.mark.parametrize(
    ("flags", "sentence_start"),
    [
        ({"linformer_k": "0"}, "--linformer-k must be at least 1, not 0"),
        ({"linformer_k": "65"}, "--linformer-k 65 is larger than the longest source, 64 tokens"),
        ({"linformer_k": "8,4,2"}, "--linformer-k 8,4,2 gives 3 values for 2 layers"),
        ({"linformer_k": "many"}, "--linformer-k takes a whole number"),
        ({"linformer_cross_k": "-1", "linformer_k": "4"}, "--linformer-cross-k must be at least 1"),
        ({"linformer_k": "8,4", "decoder_layers": 3}, "--linformer-k 8,4 gives 2 values .* another --linformer-c"),
        ({"linformer_k": []}, "--linformer-k takes a whole number"),
        ({"linformer_k": [4.7, 3.2]}, "--linformer-k takes a whole number"),
        (
            {"linformer_attention": "encoder,decoder", "linformer_decoder_k": "65"},
            "--linformer-decoder-k 65 is larger than the longest target, 64 tokens",
        ),
        (
            {"linformer_attention": "encoder,decoder", "linformer_k": "8,4", "decoder_layers": 3},
            "--linformer-k 8,4 gives 2 values for 3 layers; .* or another --linformer-decoder-k for causal self",
        ),
        (
            {"linformer_attention": "decoder", "cross_self_attention": True},
            "--cross-self-attention does not go with decoder in --linformer-attention",
        ),
        ({"linformer_attention": "encoder,middle"}, "--linformer-attention knows encoder, cross and decoder, not 'mid"),
        ({"linformer_attention": ""}, "--linformer-attention knows encoder, cross and decoder, not ''"),
        # as checkpoints may have them that were written when there was more to choose from
        ({"linformer_sharing": "none"}, "--linformer-sharing is one of headwise, key-value, layerwise, not 'none'"),
        ({"linformer_projection": "pooled-linear"}, "--linformer-projection is one of linear, .*, not 'pooled-linear'"),
        (
            {"linformer_projection": "window", "linformer_attention": EVERYWHERE, "linformer_window_ratio": 1.5},
            "--linformer-projection window is not for cross-attention: leave cross out of --linformer-attention, or gi",
        ),
        ({"linformer_cross_projection": "window"}, "--linformer-cross-projection is one of linear, .*, not 'window'$"),
        ({"linformer_encoder_projection": "fft"}, "--linformer-encoder-projection is one of linear, .*, not 'fft'"),
        (
            {"linformer_projection": "conv", "linformer_cross_projection": "two-level", "linformer_attention": "cross"},
            r"--linformer-projection conv has no effect on this attention \(two-level at cross\): leave it out",
        ),
        ({"linformer_encoder_projection": "max-pool", "linformer_k": "0"}, "--linformer-k must be at least 1, not 0"),
        (
            {"linformer_cross_projection": "mean-pool", "linformer_k": "65", "linformer_cross_k": "66"},
            "--linformer-k 65 is larger than the longest source, 64 tokens",
        ),
        ({"linformer_open_slots": 0, **TWO_LEVELS}, "--linformer-open-slots must be at least 1, not 0"),
        ({"linformer_open_slots": "3", **TWO_LEVELS}, "--linformer-open-slots takes a whole number, not '3'"),
        ({"linformer_exact_below": -1, **TWO_LEVELS}, "--linformer-exact-below must be at least 0, not -1"),
        ({"linformer_block_size": 0, **TWO_LEVELS}, "--linformer-block-size must be at least 1, not 0"),
        ({"linformer_slot_width": 0, **TWO_LEVELS}, "--linformer-slot-width must be at least 1, not 0"),
        (
            {"linformer_attention": "decoder", "linformer_decoder_projection": "conv"},
            "--linformer-decoder-projection is one of linear, full, two-level, window, not 'conv'",
        ),
        (
            {"linformer_projection": "window", "linformer_window_size": 0},
            "--linformer-window-size must be at least 1, not 0",
        ),
        ({"linformer_value_convolution": 4}, "--linformer-value-convolution must be an odd number of tokens"),
        ({"linformer_window": -1, "linformer_attention": "decoder"}, "--linformer-window must be at least 0, not -1"),
        (
            {"linformer_attention": "decoder", "linformer_k": "9,8", "linformer_window": 8},
            "--linformer-window 8 leaves no slot of --linformer-k 8",
        ),
        ({"linformer_k": "8,4", "linformer_sharing": "layerwise"}, "--linformer-sharing layerwise needs one"),
    ],
)
def test_bad_flags_end_in_one_sentence(flags: dict[str, object], sentence_start: str) -> None:
    with pytest.raises(SystemExit, match=f"^error: {sentence_start}") as error:
        toy_model(**flags)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "places", "flag", "value", "in_use"),
    [
        ("linear", "encoder,cross", "open-slots", 3, "linear at encoder, linear at cross"),
        ("linear", EVERYWHERE, "exact-below", 0, "linear at encoder, linear at cross, linear at decoder"),
        ("two-level", EVERYWHERE, "sharing", "layerwise", "two-level at encoder, .*"),
        ("mean-pool", "encoder,cross", "sharing", "key-value", "mean-pool at encoder, mean-pool at cross"),
        ("mean-pool", "encoder,cross", "freeze-projection", True, "mean-pool at encoder, mean-pool at cross"),
        ("conv", "encoder,cross", "mask-empty-slots", True, "conv at encoder, conv at cross"),
        ("linear", "encoder,cross", "window", 8, "linear at encoder, linear at cross"),
        ("two-level", EVERYWHERE, "window", 8, "two-level at encoder, .*"),
        ("linear", "decoder", "window-size", 8, "linear at decoder"),
        ("full", EVERYWHERE, "k", "32", "full at encoder, full at cross, full at decoder"),
        ("window", "encoder,decoder", "k", "32", "window at encoder, window at decoder"),
        ("window", "encoder,decoder", "decoder-k", "32", "window at encoder, window at decoder"),
        ("linear", "encoder", "cross-k", "4", "linear at encoder"),
        ("linear", "cross", "decoder-k", "4", "linear at cross"),
        ("linear", "encoder", "decoder-projection", "linear", "linear at encoder"),
        ("linear", "encoder", "cross-projection", "full", "linear at encoder"),
        ("linear", "cross,decoder", "encoder-projection", "full", "linear at cross, linear at decoder"),
        ("linear", "cross,decoder", "value-convolution", 3, "linear at cross, linear at decoder"),
        ("mean-pool", "decoder", "projection", "mean-pool", "linear at decoder"),
        ("conv", "decoder", "projection", "conv", "linear at decoder"),
    ],
)
def test_a_flag_without_effect_is_refused(kind: str, places: str, flag: str, value: object, in_use: str) -> None:
    flags = {"linformer_projection": kind, "linformer_attention": places, f"linformer_{flag.replace('-', '_')}": value}
    told = f"--linformer-{flag}" if value is True else f"--linformer-{flag} {value}"
    with pytest.raises(SystemExit, match=rf"^error: {told} has no effect on this attention \({in_use}\): leave it out"):
        toy_model(**flags)


def test_a_flag_that_has_an_effect_somewhere_passes() -> None:
    """As does the default of another kind, which an architecture or a checkpoint may have said, and what is gone."""
    assert toy_model(linformer_init="normal", linformer_window_ratio=1.5)
    assert toy_model(linformer_projection="mean-pool", linformer_attention=EVERYWHERE, linformer_sharing="layerwise")
    assert toy_model("two_level_transformer", linformer_window=0, linformer_k=64)
    assert toy_model("two_level_transformer", linformer_attention="decoder", linformer_decoder_projection="window")
    with pytest.raises(
        SystemExit, match=r"^error: --linformer-k 9 has no effect on this attention \(linear at cross\):"
    ):
        toy_model(linformer_attention="cross", linformer_cross_k="4", linformer_k="9")


@pytest.mark.parametrize("kind", [kind for kind in CROSS_KINDS if kind not in ("linear", "full")])
def test_k_is_only_a_maximum_where_it_is_not_learned(kind: str) -> None:
    """As many slots as tokens, or more, are full attention, but for clusters, which are a power of two."""
    task, flags = toy_task(), {"linformer_projection": kind, "linformer_k": "100", "linformer_cross_k": "1024"}
    flags |= {"linformer_exact_below": 0, "linformer_attention": EVERYWHERE} if kind == "two-level" else {}
    transformer, model = toy_model("transformer", task), toy_model(task=task, random=False, **flags)
    model.load_state_dict(transformer.state_dict())
    outputs = [m.eval()(**net_input(task))[0] for m in (model, transformer)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", CROSS_KINDS)
def test_a_convolution_stands_beside_the_encoders_attention_alone(kind: str) -> None:
    model = toy_model(linformer_projection=kind, linformer_attention=EVERYWHERE, linformer_value_convolution=5)
    widths = {
        name.rsplit(".", 2)[0]: weight.size(2)
        for name, weight in model.named_parameters()
        if name.endswith("value_convolution.weight")
    }
    assert widths == {f"encoder.layers.{layer}.self_attn": 5 for layer in range(2)}
