"""Fairseq builds and runs the whole translation model."""

from argparse import Namespace

import pytest
import torch

from linformer_fairseq.convert.checkpoint import start_as_identity
from linformer_fairseq.modules import CROSS_KINDS
from linformer_fairseq.modules.linformer_attention import SHARINGS
from tests.models.toy import (
    EVERYWHERE,
    SLOTS_FOR_ALL,
    batch,
    check_scores,
    each_hypothesis,
    net_input,
    sentence,
    small,
    toy_model,
    toy_task,
    translate,
)
from tests.variants import variants


@pytest.mark.parametrize(
    ("kind", "sharing", "places", "window"),
    variants(
        [
            *((kind, "headwise", "encoder,cross", None) for kind in CROSS_KINDS),
            *((kind, sharing, "encoder,cross", None) for kind in ("linear", "conv") for sharing in SHARINGS),
            *(
                ("linear", sharing, places, window)
                for sharing in SHARINGS
                for places in ("decoder", "encoder,decoder", EVERYWHERE)
                for window in (0, 3)
            ),
        ],
        default=[
            *((kind, "headwise", "encoder,cross", None) for kind in CROSS_KINDS),
            ("linear", "headwise", "decoder", 3),
            ("linear", "headwise", "encoder,decoder", 0),
            ("linear", "layerwise", EVERYWHERE, 0),
            ("linear", "key-value", EVERYWHERE, 3),
            ("two-level", "headwise", EVERYWHERE, None),
            ("window", "headwise", "encoder,decoder", None),
        ],
    ),
)
def test_translations_depend_on_neither_steps_nor_batch_nor_padding_side(
    kind: str, sharing: str, places: str, window: int | None
) -> None:
    """Beam search gives the scores of a parallel pass, in float64, as the orders of products differ."""
    task = toy_task()
    flags = {"linformer_sharing": sharing, "linformer_attention": places}
    flags |= small(kind, window=6)
    model = toy_model(linformer_projection=kind, linformer_window=window, **flags).double()
    sources = [sentence(task, 45, 2), sentence(task, 9, 1), sentence(task, 2, 3)]
    short = batch(task, sources[1:2], left_pad=False)
    alone, (expected,) = model.encoder(**short["net_input"])["encoder_out"][0], translate(task, model, short)
    for left_pad in (True, False):
        sample = batch(task, sources, left_pad)
        encoded = model.encoder(**sample["net_input"])["encoder_out"][0]
        torch.testing.assert_close(encoded[-9:, 1:2] if left_pad else encoded[:9, 1:2], alone, rtol=0, atol=1e-5)
        hypotheses = translate(task, model, sample)
        for found, wanted in zip(hypotheses[1], expected, strict=True):
            assert torch.equal(found["tokens"], wanted["tokens"])
            torch.testing.assert_close(found["positional_scores"], wanted["positional_scores"], rtol=1e-5, atol=1e-5)
    said = {tuple(tuple(hypothesis["tokens"].tolist()) for hypothesis in beams) for beams in hypotheses}
    assert len(said) > 1, "the toy model should not say the same of everything"
    check_scores(task, [model], sources, hypotheses)


@pytest.mark.parametrize(
    "flags",
    [
        {"linformer_projection": "mean-pool", "linformer_k": "16"},
        {
            "linformer_projection": "two-level",
            "linformer_k": "8",
            "linformer_open_slots": 8,
            "linformer_exact_below": 0,
            "linformer_attention": EVERYWHERE,
            "linformer_decoder_projection": "linear",
            "linformer_decoder_k": "14",
            "linformer_window": 13,
        },
        {"linformer_projection": "two-level", "linformer_attention": EVERYWHERE, "linformer_k": "2"},
        {
            "linformer_projection": "two-level",
            "linformer_attention": EVERYWHERE,
            "linformer_k": "16",
            "linformer_exact_below": 0,
            "linformer_slot_width": 4,
            "linformer_decoder_k": "64",
        },
    ],
)
def test_a_transformer_becomes_a_linformer_without_loss(flags: dict) -> None:
    """Nothing is lost where k or the open windows cover the source, and the causal window or the first tokens, which
    two levels see in full, the target."""
    task = toy_task()
    transformer, model = toy_model("transformer"), toy_model(random=False, **flags)
    model.load_state_dict(transformer.state_dict(), strict=True)
    sample = batch(task, [sentence(task, 16, 1), sentence(task, 5, 2)], left_pad=True)
    found, wanted = (list(each_hypothesis(translate(task, m.eval(), sample))) for m in (model, transformer))
    for (_, hypothesis), (_, reference) in zip(found, wanted, strict=True):
        assert torch.equal(hypothesis["tokens"], reference["tokens"])
        torch.testing.assert_close(hypothesis["positional_scores"], reference["positional_scores"], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "flags",
    [
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"encoder_learned_pos": True, "decoder_learned_pos": True},
        {"no_token_positional_embeddings": True},
        {"layernorm_embedding": True},
        {"checkpoint_activations": True},
        {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5},
        {"no_cross_attention": True, "linformer_attention": "encoder,decoder"},
        {"cross_self_attention": True, "linformer_attention": "encoder,cross"},
        {"cross_self_attention": True, "no_cross_attention": True, "linformer_attention": "encoder,cross"},
        {"activation_fn": "gelu", "share_all_embeddings": False, "decoder_embed_dim": 8, "decoder_output_dim": 8},
    ],
)
def test_flags_of_the_transformer_keep_their_meaning(flags: dict) -> None:
    """With a slot for every position the model equals `transformer`, whatever its flags."""
    task = toy_task()
    transformer = toy_model("transformer", task, **flags)
    model = toy_model(task=task, random=False, **{"linformer_attention": EVERYWHERE, **SLOTS_FOR_ALL, **flags})
    start_as_identity(model)
    model.load_state_dict(transformer.state_dict())
    outputs = [m.eval()(**net_input(task))[0] for m in (model, transformer)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)


def test_ensemble_of_linformer_and_transformer() -> None:
    task = toy_task()
    causal = toy_model(linformer_k="7", linformer_attention=EVERYWHERE)
    models = [toy_model(linformer_k="4"), toy_model("transformer"), causal]
    sources = [sentence(task, 12, 1), sentence(task, 5, 2)]
    check_scores(task, models, sources, translate(task, models, batch(task, sources, left_pad=True), max_len_b=20))


def test_left_padded_targets_are_refused() -> None:
    older = toy_task()
    older.cfg, older.args = None, Namespace(left_pad_target="True")  # as tasks that parse their own arguments have it
    for task in (toy_task(left_pad_target=True), older):
        with pytest.raises(SystemExit, match=r"^error: --left-pad-target is not supported"):
            toy_model(task=task)


def test_a_beam_is_for_projected_attention_alone() -> None:
    """Fairseq's own attention, once told of a beam, would mistake a training batch for one."""
    task = toy_task()
    model = toy_model(task=task, linformer_attention="encoder")
    translate(task, model, batch(task, [sentence(task, 9)], left_pad=True), beam=4)
    assert {layer.encoder_attn.beam_size for layer in model.decoder.layers} == {1}


@pytest.mark.parametrize("kind", ["linear", "two-level"])
def test_quantisation_noise_falls_on_all_attention(kind: str) -> None:
    """It is there in training, and not in a search."""
    task, flags = toy_task(), {"linformer_attention": EVERYWHERE, "linformer_k": "4"}
    flags |= {"quant_noise_pq": 0.5, "quant_noise_pq_block_size": 4}
    model = toy_model(task=task, linformer_projection=kind, **flags)
    source = net_input(task)
    model.train()
    assert not torch.equal(model(**source)[0], model(**source)[0])
    model(**source)[0].sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.grad is not None)
    model.eval()
    sources = [sentence(task, 12, 1), sentence(task, 5, 2)]
    check_scores(task, [model], sources, translate(task, model, batch(task, sources, left_pad=True)))
