"""The model as fairseq builds and runs it."""

import io
from argparse import ArgumentParser, Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_NAME_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.sequence_generator import SequenceGenerator
from fairseq.sequence_scorer import SequenceScorer

from linformer_fairseq import LinformerMultiheadAttention, LinformerTransformerModel
from linformer_fairseq.models.config import default_flags
from linformer_fairseq.models.linformer_transformer import ARCHITECTURES
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.modules import (
    KINDS,
    CausalLinformerAttention,
    LinearProjection,
    ProjectedAttention,
    TwoLevelAttention,
)
from linformer_fairseq.modules.linformer_attention import SHARINGS
from tests.models.toy import (
    SIZES,
    batch,
    each_hypothesis,
    previous_tokens,
    sentence,
    toy_args,
    toy_model,
    toy_task,
    translate,
)

every_sharing = pytest.mark.parametrize("sharing", SHARINGS)
every_kind = pytest.mark.parametrize("kind", KINDS)


def encode(model: LinformerTransformerModel, sample: dict) -> torch.Tensor:
    with torch.no_grad():
        return model.encoder(**sample["net_input"])["encoder_out"][0]


@every_sharing
@every_kind
def test_a_sentence_does_not_depend_on_batch_or_padding_side(sharing: str, kind: str) -> None:
    task = toy_task()
    model = toy_model(linformer_k="4", linformer_sharing=sharing, linformer_projection=kind).double()
    short, long = sentence(task, 9, 1), sentence(task, 45, 2)
    alone = encode(model, batch(task, [short], left_pad=False))
    expected = translate(task, model, batch(task, [short], left_pad=False))[0]
    for left_pad in (True, False):
        sample = batch(task, [long, short], left_pad)
        torch.testing.assert_close(encode(model, sample)[:9, 1:], alone, rtol=0, atol=1e-5)
        hypotheses = translate(task, model, sample)[1]
        assert len(hypotheses) == len(expected) == 4
        for found, wanted in zip(hypotheses, expected, strict=True):
            assert torch.equal(found["tokens"], wanted["tokens"])
            torch.testing.assert_close(found["positional_scores"], wanted["positional_scores"], rtol=1e-5, atol=1e-5)


@every_sharing
@every_kind
def test_beam_search_gives_the_scores_of_a_parallel_pass(sharing: str, kind: str) -> None:
    task = toy_task()
    # in float64, as a step and a pass over all tokens take their products in different orders
    model = toy_model(linformer_k="4", linformer_sharing=sharing, linformer_projection=kind).double()
    sources = [sentence(task, 12, 1), sentence(task, 5, 2), sentence(task, 30, 3)]
    hypotheses = translate(task, model, batch(task, sources, left_pad=True))
    best = [beams[0]["tokens"].tolist() for beams in hypotheses]
    assert len({tuple(tokens) for tokens in best}) > 1, "the toy model should not say the same of everything"
    scorer = SequenceScorer(task.target_dictionary)
    for index, hypothesis in each_hypothesis(hypotheses):
        sample = batch(task, [sources[index]], left_pad=True)
        target = hypothesis["tokens"][None]
        sample["target"] = target
        sample["net_input"]["prev_output_tokens"] = previous_tokens(task, target)
        scored = scorer.generate([model], sample)[0][0]
        torch.testing.assert_close(
            scored["positional_scores"], hypothesis["positional_scores"], rtol=0, atol=1e-5, check_dtype=False
        )


def test_attention_weights_follow_the_padding_of_the_task() -> None:
    task = toy_task()
    model = toy_model(linformer_k="4")
    short, long = sentence(task, 9, 1), sentence(task, 20, 2)
    target = sentence(task, 6, 3)[None].expand(2, -1)
    weights = {}
    for left_pad in (True, False):
        sample = batch(task, [long, short], left_pad)["net_input"]
        _, extra = model(**sample, prev_output_tokens=previous_tokens(task, target))
        weights[left_pad] = extra["attn"][0]
    assert weights[True].shape == (2, 6, 20)
    assert (weights[True][1, :, :11] == 0).all()
    torch.testing.assert_close(weights[True][1, :, 11:], weights[False][1, :, :9])
    torch.testing.assert_close(weights[True][0], weights[False][0])


def test_given_embeddings_are_moved_with_their_tokens() -> None:
    task = toy_task()
    model = toy_model(linformer_k="4")
    sample = batch(task, [sentence(task, 20, 1), sentence(task, 9, 2)], left_pad=True)["net_input"]
    embeddings = model.encoder.embed_tokens(sample["src_tokens"])
    expected = model.encoder(**sample)["encoder_out"][0]
    out = model.encoder(**sample, token_embeddings=embeddings)["encoder_out"][0]
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(("sharing", "matrices"), [("none", 96), ("headwise", 12), ("key-value", 6), ("layerwise", 1)])
def test_number_of_projection_matrices(sharing: str, matrices: int) -> None:
    flags = {"encoder_layers": 6, "encoder_attention_heads": 8, "linformer_k": "4", "linformer_sharing": sharing}
    model = toy_model(**flags)
    weights = {weight for name, weight in model.encoder.named_parameters() if "projection" in name}
    assert sum(weight.size(0) if weight.dim() == 3 else 1 for weight in weights) == matrices


@every_sharing
def test_save_and_load(sharing: str) -> None:
    """Loading into a model that never trained must not fall back on full attention, as fairseq 0.12.2 would."""
    task = toy_task()
    model = toy_model(linformer_k="4", linformer_sharing=sharing)
    sample = batch(task, [sentence(task, 12, 1), sentence(task, 5, 2)], left_pad=True)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    loaded = toy_model(linformer_k="4", linformer_sharing=sharing, random=False)
    loaded.load_state_dict(torch.load(buffer), strict=True)
    torch.testing.assert_close(encode(loaded, sample), encode(model, sample), rtol=0, atol=0)
    if sharing == "layerwise":
        weights = projection_weights(loaded.state_dict())
        assert len(weights) == 8  # K and V, encoder and cross-attention, two layers
        assert len({weight.data_ptr() for weight in weights.values()}) == 2


def test_state_is_the_same_on_every_fairseq() -> None:
    names = set(toy_model(linformer_k="4").state_dict())
    assert not {name for name in names if name.rsplit(".", 1)[-1] in {"in_proj_weight", "fc1_weight", "out_proj_bias"}}


@pytest.mark.parametrize("kind", ["pooled-linear", "mean-pool"])
@every_sharing
def test_a_transformer_becomes_a_linformer_without_loss(kind: str, sharing: str) -> None:
    task = toy_task()
    transformer = toy_model("transformer")
    flags = {"linformer_k": "16", "linformer_projection": kind, "linformer_sharing": sharing}
    model = toy_model(random=False, **flags)
    model.load_state_dict(transformer.state_dict(), strict=True)
    model.eval()
    sample = batch(task, [sentence(task, 16, 1), sentence(task, 5, 2)], left_pad=True)
    found, wanted = (list(each_hypothesis(translate(task, m, sample))) for m in (model, transformer))
    for (_, hypothesis), (_, reference) in zip(found, wanted, strict=True):
        assert torch.equal(hypothesis["tokens"], reference["tokens"])
        torch.testing.assert_close(hypothesis["positional_scores"], reference["positional_scores"], rtol=0, atol=1e-5)


def test_places_and_k_of_every_layer() -> None:
    model = toy_model(linformer_k="8,4", linformer_cross_k="3", linformer_attention="encoder,cross")
    assert [layer.self_attn.key_projection.projected_dim for layer in model.encoder.layers] == [8, 4]
    assert [layer.encoder_attn.key_projection.projected_dim for layer in model.decoder.layers] == [3, 3]
    encoder_only = toy_model(linformer_attention="encoder", linformer_k="4")
    assert all(type(layer.encoder_attn) is MultiheadAttention for layer in encoder_only.decoder.layers)
    cross_only = toy_model(linformer_attention="cross", linformer_k="4")
    assert all(type(layer.self_attn) is MultiheadAttention for layer in cross_only.encoder.layers)
    assert all(type(layer.encoder_attn) is LinformerMultiheadAttention for layer in cross_only.decoder.layers)
    assert all(type(layer.self_attn) is MultiheadAttention for layer in cross_only.decoder.layers)


def test_frozen_projections_do_not_train() -> None:
    model = toy_model(linformer_freeze_projection=True, linformer_k="4", random=False)
    frozen = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert frozen == {name for name, _ in model.named_parameters() if "_projection.weight" in name and "layers" in name}


def test_checkpointed_activations_change_nothing() -> None:
    task = toy_task()
    sample = batch(task, [sentence(task, 12, 1), sentence(task, 5, 2)], left_pad=True)["net_input"]
    target = sentence(task, 6, 3)[None].expand(2, -1)
    losses, gradients = [], []
    for checkpoint in (False, True):
        model = toy_model(linformer_k="4", checkpoint_activations=checkpoint).train()
        for layer in (*model.encoder.layers, *model.decoder.layers):
            assert hasattr(layer, "precheckpoint_forward") == checkpoint
        loss = model(**sample, prev_output_tokens=previous_tokens(task, target))[0].log_softmax(-1)[..., 5].sum()
        loss.backward()
        losses.append(loss)
        gradients.append(model.encoder.layers[0].self_attn.key_projection.weight.grad)
    assert torch.equal(*losses)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize(("arch", "kind"), ARCHITECTURES.items())
def test_architectures_mirror_fairseq(arch: str, kind: str) -> None:
    ours, theirs = Namespace(), Namespace()
    ARCH_CONFIG_REGISTRY[arch](ours)
    ARCH_CONFIG_REGISTRY[arch.removeprefix("linformer_").removeprefix("two_level_")](theirs)
    assert vars(ours) == {**vars(theirs), **default_flags(linformer_projection=kind)}
    assert ARCH_MODEL_NAME_REGISTRY[arch] == "linformer_transformer"


def test_every_flag_has_a_help_text() -> None:
    parser = ArgumentParser()
    LinformerTransformerModel.add_args(parser)
    ours = [action for action in parser._actions if action.dest.startswith("linformer")]
    assert len(ours) == 11
    assert all(action.help for action in ours)
    assert {"--encoder-layers", "--max-source-positions"} <= set(parser._option_string_actions)


@pytest.mark.parametrize(
    ("flags", "sentence_start"),
    [
        ({"linformer_k": "0"}, "--linformer-k must be at least 1, not 0"),
        ({"linformer_k": "65"}, "--linformer-k 65 is larger than --max-source-positions 64"),
        ({"linformer_k": "8,4,2"}, "--linformer-k 8,4,2 gives 3 values for 2 layers"),
        ({"linformer_k": "many"}, "--linformer-k takes a whole number"),
        ({"linformer_cross_k": "-1", "linformer_k": "4"}, "--linformer-cross-k must be at least 1"),
        ({"linformer_k": "8,4", "decoder_layers": 3}, "--linformer-k 8,4 gives 2 values .* another --linformer-c"),
        ({"linformer_attention": "encoder", "linformer_cross_k": "4"}, "--linformer-cross-k needs cross"),
        ({"linformer_k": []}, "--linformer-k takes a whole number"),
        ({"linformer_k": [4.7, 3.2]}, "--linformer-k takes a whole number"),
        ({"linformer_attention": "cross", "linformer_decoder_k": "4"}, "--linformer-decoder-k needs decoder among"),
        (
            {"linformer_attention": "encoder,decoder", "linformer_decoder_k": "65"},
            "--linformer-decoder-k 65 is larger than --max-target-positions 64",
        ),
        (
            {"linformer_attention": "encoder,decoder", "linformer_k": "8,4", "decoder_layers": 3},
            "--linformer-k 8,4 gives 2 values for 3 layers; .* or another --linformer-decoder-k for the decoder's",
        ),
        (
            {"linformer_attention": "decoder", "cross_self_attention": True},
            "--cross-self-attention does not go with decoder in --linformer-attention",
        ),
        ({"linformer_attention": "decoder", "quant_noise_pq": 0.1}, r"quantisation noise \(--quant-noise-pq\)"),
        (
            {"linformer_attention": "decoder", "quant_noise_scalar": 0.1},
            "--quant-noise-scalar does not go with decoder",
        ),
        ({"linformer_attention": "encoder,middle"}, "--linformer-attention knows encoder, cross and decoder, not 'mid"),
        ({"linformer_attention": ""}, "--linformer-attention knows encoder, cross and decoder, not ''"),
        ({"linformer_sharing": "some"}, "--linformer-sharing is one of none, headwise"),
        (
            {"linformer_projection": "fft"},
            "--linformer-projection is one of linear, pooled-linear, .*, two-level, not 'fft'",
        ),
        ({"linformer_open_slots": 0}, "--linformer-open-slots must be at least 1, not 0"),
        ({"linformer_window": -1}, "--linformer-window must be at least 0, not -1"),
        ({"linformer_window": 1}, "--linformer-window 1 needs decoder among --linformer-attention"),
        (
            {"linformer_attention": "decoder", "linformer_k": "9,8", "linformer_window": 8},
            "--linformer-window 8 leaves no slot of --linformer-k 8",
        ),
        ({"linformer_init": "magic"}, "--linformer-init is one of xavier"),
        ({"linformer_init": "normal", "linformer_projection": "conv"}, "--linformer-init normal needs"),
        ({"linformer_k": "8,4", "linformer_sharing": "layerwise"}, "--linformer-sharing layerwise needs one"),
        (
            {"linformer_k": "8", "linformer_sharing": "none", "quant_noise_pq": 0.1},
            r"quantisation noise \(--quant-noise-pq\)",
        ),
    ],
)
def test_bad_flags_end_in_one_sentence(flags: dict[str, object], sentence_start: str) -> None:
    with pytest.raises(SystemExit, match=f"^error: {sentence_start}") as error:
        toy_model(**flags)
    assert "\n" not in str(error.value)


def test_left_padded_targets_are_refused() -> None:
    older = toy_task()
    older.cfg, older.args = None, Namespace(left_pad_target="True")  # as tasks that parse their own arguments have it
    for task in (toy_task(left_pad_target=True), older):
        with pytest.raises(SystemExit, match=r"^error: --left-pad-target is not supported"):
            toy_model(task=task)


@pytest.mark.parametrize(
    ("trained", "now", "sentence_start"),
    [
        (
            {"linformer_k": "4"},
            {"linformer_k": "8"},
            r"the checkpoint's \S+ has shape \(4, 64\), this model's \(8, 64\)",
        ),
        ({"linformer_k": "4"}, {"linformer_k": "4", "linformer_sharing": "none"}, "the checkpoint's .* has shape"),
        ({"linformer_attention": "encoder"}, {}, r"\S+ is in the model only: give the --linformer-attention"),
        ({}, {"linformer_attention": "cross"}, r"\S+ is in the checkpoint only: give the --linformer-attention"),
        ({"encoder_layers": 3}, {}, r"\S+ is in the checkpoint only: .* number of layers"),
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


@pytest.mark.parametrize(
    "flags",
    [
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"encoder_learned_pos": True, "decoder_learned_pos": True},
        {"no_token_positional_embeddings": True},
        {"layernorm_embedding": True},
        {"checkpoint_activations": True},
        {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5},
        {"cross_self_attention": True},
        {"cross_self_attention": True, "no_cross_attention": True},
        {"activation_fn": "gelu", "share_all_embeddings": False, "decoder_embed_dim": 8, "decoder_output_dim": 8},
    ],
)
def test_flags_of_the_transformer_keep_their_meaning(flags: dict[str, object]) -> None:
    """With as many slots as positions, mean-pooling leaves every attention as it is: the model is `transformer`."""
    task = toy_task()
    transformer = toy_model("transformer", task, **flags)
    model = toy_model(task=task, linformer_projection="mean-pool", linformer_k="64", random=False, **flags)
    model.load_state_dict(transformer.state_dict())
    sample = batch(task, [sentence(task, 12, 1), sentence(task, 5, 2)], left_pad=True)["net_input"]
    tokens = previous_tokens(task, sentence(task, 6, 3)[None].expand(2, -1))
    outputs = [m.train(False)(**sample, prev_output_tokens=tokens)[0] for m in (model, transformer)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)


def test_architectures_follow_the_encoder() -> None:
    assert toy_args(encoder_embed_dim=8).decoder_embed_dim == 8


@pytest.mark.parametrize("kind", KINDS)
def test_pruned_layers(kind: str) -> None:
    """fairseq's `--encoder-layers-to-keep` takes the projections of the layers that it keeps."""
    deep = toy_model(encoder_layers=3, linformer_projection=kind, linformer_k="8,4,2", linformer_cross_k="4")
    # fairseq drops the decoder's layers where only the encoder's are named
    keep = {"encoder_layers": 3, "encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "0,1"}
    flags = {"linformer_projection": kind, "linformer_k": "8,4,2", "linformer_cross_k": "4"}
    shallow = toy_model(random=False, **keep, **flags)
    shallow.load_state_dict(deep.state_dict(), model_cfg=toy_args(**keep, **flags))
    assert [projected_dim(layer.self_attn) for layer in shallow.encoder.layers] == [8, 2]
    for ours, theirs in zip(shallow.encoder.layers, (deep.encoder.layers[0], deep.encoder.layers[2]), strict=True):
        for name, weight in ours.state_dict().items():
            assert torch.equal(weight, theirs.state_dict()[name])


def test_dropout_keeps_fairseqs_names() -> None:
    def names(model: torch.nn.Module) -> list[str]:
        return sorted(module.module_name for module in model.modules() if isinstance(module, FairseqDropout))

    assert names(toy_model(linformer_k="4")) == names(toy_model("transformer"))


def test_ensemble_of_linformer_and_transformer() -> None:
    task = toy_task()
    models = [toy_model(linformer_k="4"), toy_model("transformer")]
    short, long = sentence(task, 9, 1), sentence(task, 30, 2)
    generator = SequenceGenerator(models, task.target_dictionary, beam_size=4, max_len_b=12)
    alone = generator.generate(models, batch(task, [short], left_pad=True))[0]
    together = generator.generate(models, batch(task, [long, short], left_pad=True))[1]
    for found, wanted in zip(together, alone, strict=True):
        assert torch.equal(found["tokens"], wanted["tokens"])
        torch.testing.assert_close(found["positional_scores"], wanted["positional_scores"], rtol=1e-5, atol=1e-5)


def test_settings_may_be_lists_as_yaml_has_them() -> None:
    model = toy_model(linformer_k=[8, 4], linformer_attention=["encoder", "cross"], linformer_cross_k=4)
    assert [layer.self_attn.key_projection.projected_dim for layer in model.encoder.layers] == [8, 4]
    assert [layer.encoder_attn.key_projection.projected_dim for layer in model.decoder.layers] == [4, 4]


def projected_dim(attention: ProjectedAttention) -> int:
    return getattr(attention, "key_projection", attention).projected_dim


def built(arch: str, **recorded: object) -> LinformerTransformerModel:
    """What fairseq builds from the flags that a command line, or a checkpoint, has for an architecture."""
    args = Namespace(arch=arch, **{name: SIZES[name] for name in SIZES if not name.startswith("linformer")}, **recorded)
    ARCH_CONFIG_REGISTRY[arch](args)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, toy_task())


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
def test_an_architecture_is_a_kind_by_default(arch: str, flags: dict[str, object], two_level: bool) -> None:
    """Beside two levels causal attention spends half of its k on the last tokens, beside Linformer nothing."""
    model = built(arch, linformer_k="9", linformer_attention="encoder,cross,decoder", **flags)
    encoder, decoder = model.encoder.layers[0], model.decoder.layers[0]
    for attention in (encoder.self_attn, decoder.encoder_attn):
        assert type(attention) is (TwoLevelAttention if two_level else LinformerMultiheadAttention)
        assert projected_dim(attention) == 9
    if two_level:
        assert encoder.self_attn.open_slots == 3
    else:
        projections = encoder.self_attn.key_projection, encoder.self_attn.value_projection
        assert all(type(projection) is LinearProjection for projection in projections)
        assert projections[0] is not projections[1]
        assert projections[0].init == "xavier"
        assert not projections[0].masks_empty_slots
    assert type(decoder.self_attn) is CausalLinformerAttention
    assert decoder.self_attn.window == (4 if two_level else 0)
    assert projected_dim(decoder.self_attn) == (5 if two_level else 9)
