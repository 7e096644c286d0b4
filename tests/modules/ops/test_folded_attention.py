"""Folding the linear layers into the slots changes nothing but the number of multiplications."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import source_attention as module
from linformer_fairseq.modules.ops.folded_attention import folded_attention, folding_pays
from tests.reference import make_attention, naive_attention

WIDTH = 16


def count(product: Callable[[], torch.Tensor]) -> int:
    """Floating-point operations."""
    with FlopCounterMode(display=False) as counter:
        product()
    return counter.get_total_flops()


def pays(attention: LinformerMultiheadAttention, queries: int, slots: int) -> bool:
    return folding_pays(queries, slots, attention.num_heads, attention.q_proj, attention.out_proj)


@given(
    lengths=st.lists(st.integers(1, 24), min_size=1, max_size=3),
    queries=st.integers(1, 12),
    k=st.integers(1, 8),
    heads=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
    kind=st.sampled_from(["linear", "pooled-linear"]),
)
def test_values_and_gradients_equal_naive_reference(
    lengths: list[int], queries: int, k: int, heads: int, bias: bool, kind: str
) -> None:
    attention = make_attention(
        kind, k=k, n=24, embed_dim=WIDTH, num_heads=heads, bias=True, encoder_decoder_attention=True
    )
    if not bias:
        with torch.no_grad():
            for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
                linear.bias.zero_()
    key = torch.randn(max(lengths), len(lengths), WIDTH, dtype=torch.float64, requires_grad=True)
    query = torch.randn(queries, len(lengths), WIDTH, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(len(key)) >= torch.tensor(lengths)[:, None]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "folding_pays", lambda *_: True)
        out, _ = attention(query, key, key, key_padding_mask=mask, static_kv=True, need_weights=False)
    expected = naive_attention(attention, query, key, lengths)[0]
    torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
    inputs, upstream = [query, key, *attention.parameters()], torch.randn_like(out)
    gradients = [
        torch.autograd.grad(y, inputs, upstream, allow_unused=True, materialize_grads=True) for y in (out, expected)
    ]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_layers_without_bias() -> None:
    q_proj, out_proj = (torch.nn.Linear(8, 8, bias=False).double() for _ in range(2))
    query = torch.randn(5, 2, 8, dtype=torch.float64)
    keys, values = (torch.randn(2, 2, 3, 4, dtype=torch.float64) for _ in range(2))
    out = folded_attention(query, keys, values, None, q_proj, out_proj, lambda x: x)
    q = q_proj(query).view(5, 2, 2, 4).permute(1, 2, 0, 3)
    heads = torch.softmax(q @ keys.transpose(2, 3) / 2, -1) @ values
    torch.testing.assert_close(out, out_proj(heads.permute(2, 0, 1, 3).flatten(2)))


@given(queries=st.integers(1, 40), k=st.integers(1, 16), heads=st.sampled_from([1, 2, 4, 8]))
def test_the_rule_takes_the_fewer_multiplications(queries: int, k: int, heads: int) -> None:
    """With those of the folding itself, which no query adds to, counted twice."""
    attention = make_attention("linear", k=k, n=16, embed_dim=WIDTH, num_heads=heads, encoder_decoder_attention=True)
    query = torch.randn(queries, 2, WIDTH, dtype=torch.float64)
    keys, values = (torch.randn(2, heads, k, WIDTH // heads, dtype=torch.float64) for _ in range(2))
    folded, folding = (
        count(lambda x=x: folded_attention(x, keys, values, None, attention.q_proj, attention.out_proj, lambda x: x))
        for x in (query, query[:0])
    )

    def apart() -> torch.Tensor:
        q = attention.q_proj(query).unflatten(2, (heads, -1)).permute(1, 2, 0, 3)
        return attention.out_proj((q @ keys.transpose(2, 3) @ values).permute(2, 0, 1, 3).flatten(2))

    assert 0 < folding < folded
    assert pays(attention, queries, k) == (folded + folding < count(apart))


@pytest.mark.parametrize(
    ("queries", "k", "expected"),
    [
        (8192, 32, True),
        (8192, 64, True),
        (8192, 128, False),
        (128, 32, True),
        (60, 32, False),  # fewer multiplications, but longer by the clock
        (1, 1, False),
    ],
)
def test_where_it_pays(queries: int, k: int, expected: bool) -> None:
    linear = torch.nn.Linear(512, 512, device="meta")
    assert folding_pays(queries, k, 8, linear, linear) == expected


def test_layers_that_do_more_are_called() -> None:
    attention = make_attention("linear", k=2, n=64, embed_dim=WIDTH)
    assert pays(attention, 64, 2)
    attention.out_proj.register_forward_hook(lambda *_: None)
    assert not pays(attention, 64, 2)


def test_dropout_falls_on_the_probabilities() -> None:
    attention = make_attention("linear", k=2, n=64, embed_dim=WIDTH, dropout=0.999).train()
    assert pays(attention, 64, 2)
    x = torch.randn(64, 2, WIDTH, dtype=torch.float64)
    out, _ = attention(x, x, x, need_weights=False)
    # nearly every query is left with the bias alone
    alone = (out - attention.out_proj.bias).abs().amax(-1) < 1e-12
    assert alone.double().mean() > 0.9
