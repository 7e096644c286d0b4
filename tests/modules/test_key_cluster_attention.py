"""Attention to clusters equals its formula for many sizes, in one pass and in the steps of a search."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules import KeyClusterAttention
from tests.operations import computing_operations
from tests.reference import assert_same_gradients, make_attention, naive_attention, padding_mask
from tests.steps import check_steps_of_cross_attention
from tests.variants import NEWER_TORCH

KS = st.sampled_from([1, 2, 7, 16, 33, 64])


@given(
    k=KS,
    lengths=st.lists(st.integers(1, 150), min_size=2, max_size=3),
    cross=st.booleans(),
    queries=st.integers(1, 40),
    heads=st.sampled_from([1, 2]),
)
def test_many_sizes_equal_the_naive_reference(
    k: int, lengths: Sequence[int], cross: bool, queries: int, heads: int
) -> None:
    """With more features of a head than are looked at, and fewer; none of them has a mean of 0."""
    place = "encoder_decoder_attention" if cross else "self_attention"
    attention = make_attention("key-clusters", k=k, n=150, embed_dim=20, num_heads=heads, **{place: True})
    n = max(lengths)
    key = (torch.randn(n, len(lengths), 20, dtype=torch.float64) + 1.0).requires_grad_()
    query = torch.randn(queries, len(lengths), 20, dtype=torch.float64, requires_grad=True) if cross else key
    out, weights = attention(query, key, key, padding_mask(lengths), need_head_weights=True)
    fast, _ = attention(query, key, key, padding_mask(lengths), need_weights=False)
    expected, expected_weights = naive_attention(attention, query, key, lengths)
    torch.testing.assert_close(weights, expected_weights, rtol=1e-9, atol=1e-9)
    for own in (out, fast):
        torch.testing.assert_close(own, expected, rtol=1e-9, atol=1e-9)
        assert_same_gradients(own, expected, [query, key, *attention.parameters()], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("lengths", [[16], [16, 3, 1], [9, 12]])
def test_no_more_tokens_than_clusters_are_full_attention(lengths: list[int]) -> None:
    x = torch.randn(max(lengths), len(lengths), 8, dtype=torch.float64)
    few, all_apart = (make_attention("key-clusters", k=k, n=128) for k in (16, 128))
    all_apart.load_state_dict(few.state_dict())
    exact = make_attention("two-level", k=16, n=128, exact_below=100)
    exact.load_state_dict(few.state_dict())
    expected, weights = exact(x, x, x, padding_mask(lengths))
    for attention in (few, all_apart):
        out, own = attention(x, x, x, padding_mask(lengths))
        torch.testing.assert_close(own, weights)
        torch.testing.assert_close(out, expected)


@given(
    k=KS,
    lengths=st.lists(st.integers(1, 60), min_size=3, max_size=3),
    steps=st.lists(st.sampled_from([1, 1, 2, 5, 30]), min_size=1, max_size=5),
    hypotheses=st.integers(1, 3),
)
def test_steps_of_cross_attention_equal_one_pass(k: int, lengths: list[int], steps: list[int], hypotheses: int) -> None:
    attention = make_attention("key-clusters", k=k, n=64, encoder_decoder_attention=True)
    check_steps_of_cross_attention(attention, lengths, steps, hypotheses)


def test_values_may_have_another_source() -> None:
    for n in (16, 60):  # projected, then averaged; averaged, then projected
        attention = make_attention("key-clusters", k=8, n=64, num_heads=4, encoder_decoder_attention=True)
        x = torch.randn(n, 2, 8, dtype=torch.float64)
        torch.testing.assert_close(attention(x, x, x.clone()), attention(x, x, x))


@pytest.mark.skipif(not NEWER_TORCH, reason="the counts are those of torch 2.13")
@pytest.mark.parametrize(("lengths", "most"), [([1024, 1024], 98), ([1024, 700], 116)])
def test_dispatches_few_operations_forward_and_backward(lengths: list[int], most: int) -> None:
    attention = make_attention("key-clusters", k=256, n=1024, dtype=torch.float32, self_attention=True)
    x, mask = torch.randn(1024, 2, 8, requires_grad=True), padding_mask(lengths)

    def run() -> Sequence[torch.Tensor]:
        out, _ = attention(x, x, x, mask, need_weights=False)
        return torch.autograd.grad(out.sum(), [x, *attention.parameters()])

    run()
    assert len(computing_operations(run)) <= most


def test_it_says_what_it_is() -> None:
    attention = make_attention("key-clusters", k=5, n=20)
    assert isinstance(attention, KeyClusterAttention)
    assert attention.extra_repr() == "k=5, clusters=4"
    with pytest.raises(ValueError, match="the projected dimension k must be at least 1, not 0"):
        make_attention("key-clusters", k=0)
