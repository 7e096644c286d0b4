"""Longformer is a window of the same size, and a sentence does not depend on its batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules import BaseAttention
from tests.peers.conftest import check_alone, make_peer
from tests.reference import make_attention, padding_mask


def make(**options: object) -> BaseAttention:
    return make_peer("longformer", **options)


@given(size=st.sampled_from([4, 8, 30]), lengths=st.lists(st.integers(1, 100), min_size=1, max_size=3))
def test_is_the_window_of_this_size(size: int, lengths: list[int]) -> None:
    longformer, window = make(window_size=size), make_attention("window", n=200, window_size=size)
    window.load_state_dict(longformer.state_dict())
    x = torch.randn(max(lengths), len(lengths), 8, dtype=torch.float64, requires_grad=True)
    mask = padding_mask(lengths)
    out, expected = (
        attention(x, x, x, mask, need_weights=False)[0].masked_fill(mask.t()[..., None], 0.0)
        for attention in (longformer, window)
    )
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)  # whose softmax is in float32
    names = [f"{name}_proj.weight" for name in ("q", "k", "v", "out")]
    ours, theirs = (dict(attention.named_parameters()) for attention in (longformer, window))
    upstream = torch.randn_like(out)
    gradients = [
        torch.autograd.grad(y, [x, *(weights[name] for name in names)], upstream)
        for y, weights in ((out, ours), (expected, theirs))
    ]
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)


@given(lengths=st.lists(st.integers(1, 60), min_size=2, max_size=2))
def test_a_sentence_is_computed_as_by_itself(lengths: list[int]) -> None:
    check_alone(make(window_size=8), [60, *lengths], outputs=(0, 1e-6), gradients=(0, 1e-4))


@torch.no_grad()
@pytest.mark.parametrize(("n", "padded"), [(1, 4), (5, 8), (16, 30), (17, 30), (31, 60)])
def test_short_sentences_are_not_padded_to_whole_windows(n: int, padded: int) -> None:
    attention = make(window_size=30)
    lengths: list[int] = []
    attention.core.register_forward_pre_hook(lambda _, inputs: lengths.append(inputs[0].size(1)))
    x = torch.randn(n, 1, 8, dtype=torch.float64)
    attention(x, x, x, need_weights=False)
    assert lengths == [padded]


@torch.no_grad()
def test_dropout_falls_on_the_weights_in_training_alone() -> None:
    attention = make(window_size=4, dropout=0.5)
    x = torch.randn(9, 1, 8, dtype=torch.float64).expand(9, 5000, 8)
    expected = attention(x, x, x, need_weights=False)[0]
    torch.testing.assert_close(expected[:, 0], expected[:, 1])
    attention.train()
    out = attention(x, x, x, need_weights=False)[0]
    assert not torch.equal(out[:, 0], out[:, 1])
    tolerance = 0.1 * expected.std().item()
    torch.testing.assert_close(out.mean(1), expected[:, 0], rtol=0, atol=tolerance)
    attention.eval()
    attention.dropout_module.apply_during_inference = True  # fairseq's `--retain-dropout`
    out = attention(x, x, x, need_weights=False)[0]
    assert not torch.equal(out[:, 0], out[:, 1])
