"""Two levels in all three attentions, over long texts."""

import pytest
import torch
from torch import Tensor

from tests.models.toy import EVERYWHERE, batch, check_scores, net_input, sentence, toy_model, toy_task, translate
from tests.variants import variants

FLAGS = {"max_source_positions": 1024, "max_target_positions": 1024, "linformer_attention": EVERYWHERE}
NARROW = {"linformer_k": "16", "linformer_exact_below": 0, "linformer_block_size": 16}


@pytest.mark.parametrize("length", variants([1000], default=[200]))
def test_beam_search_has_the_scores_of_a_parallel_pass(length: int) -> None:
    """Sources of several forms; hypotheses change places, and the shorter sentence ends first."""
    task = toy_task()
    model = toy_model("two_level_transformer", task, **FLAGS, **NARROW, linformer_slot_width=8)
    sources = [sentence(task, n, n) for n in (length, length // 3, 9)]
    hypotheses = translate(
        task, model, batch(task, sources, left_pad=True), beam=3, max_len_b=length, min_len=length - 5
    )
    assert all(len(hypothesis["tokens"]) > length - 6 for beams in hypotheses for hypothesis in beams)
    check_scores(task, [model], sources, hypotheses, tolerance=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("length", [300, 767, 768, 900])
def test_short_texts_are_translated_as_by_the_transformer(length: int) -> None:
    """Up to the exact length outputs are equal, with the defaults of all sizes; beyond it they are not."""
    task = toy_task()
    transformer = toy_model("transformer", task, **{name: FLAGS[name] for name in list(FLAGS)[:2]})
    model = toy_model("two_level_transformer", task, random=False, **FLAGS, linformer_k="16")
    model.load_state_dict(transformer.state_dict())

    def outputs(lengths: tuple[int, int], target: int) -> list[Tensor]:
        return [m(**net_input(task, lengths, target))[0] for m in (transformer, model)]

    for lengths, target, exact in (((length, 50), 9, length < 768), ((5, 9), length, length <= 768)):
        expected, found = outputs(lengths, target)
        assert torch.allclose(found, expected, rtol=0, atol=1e-4) == exact
        torch.testing.assert_close(found[1, :768], expected[1, :768], rtol=0, atol=1e-4)


@torch.no_grad()
def test_later_target_tokens_change_nothing_before_them() -> None:
    """In no layer, neither through what is opened in cross-attention nor in the decoder: the difference is 0."""
    task = toy_task()
    model = toy_model("two_level_transformer", task, **FLAGS, **NARROW)
    inputs = net_input(task, (300, 90), 200)
    expected = model(**inputs)[0]
    for changed in (1, 100, 160, 199):
        tokens = inputs["prev_output_tokens"].clone()
        tokens[:, changed:] = 4 + (tokens[:, changed:] + 1) % 10
        found = model(**{**inputs, "prev_output_tokens": tokens})[0]
        assert torch.equal(found[:, :changed], expected[:, :changed])
        assert not torch.equal(found[:, changed:], expected[:, changed:])


def test_k_has_no_effect_on_short_texts_where_all_attention_is_exact_for_them() -> None:
    assert toy_model("two_level_transformer", linformer_exact_below=9).exact_below == 9
    linear = {"linformer_encoder_projection": "linear", "linformer_cross_projection": "linear"}
    assert toy_model("two_level_transformer", linformer_k="8", **linear).exact_below == 0
