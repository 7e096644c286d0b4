"""Projecting scores instead of tokens gives the attention of the naive reference, and is taken where it costs less."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import LinearProjection
from linformer_fairseq.modules import linformer_multihead_attention as module
from linformer_fairseq.modules.projected_scores import projected_scores_attention, projecting_scores_pays
from tests.reference import make_attention, reference_attention

WIDTH, N = 16, 24
SHARINGS = ("headwise", "key-value")


def pays(attention: LinformerMultiheadAttention, queries: int, n: int) -> bool:
    projections = attention.key_projection, attention.value_projection
    linears = attention.k_proj, attention.v_proj
    return projecting_scores_pays(projections, linears, queries, attention.num_heads, n, True)


def always(patch: pytest.MonkeyPatch, projecting: bool) -> None:
    patch.setattr(module, "folding_pays", lambda *_: False)
    patch.setattr(module, "projecting_scores_pays", lambda *_: projecting)
    if projecting:
        patch.setattr(module, "key_value_slots", None)


@pytest.mark.parametrize("sharing", SHARINGS)
@given(
    lengths=st.lists(st.integers(1, N), min_size=1, max_size=3),
    queries=st.integers(1, 12),
    k=st.integers(1, N),
    heads=st.sampled_from([1, 2, 4]),
    masked=st.booleans(),
    bias=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_values_and_gradients_equal_naive_reference(
    sharing: str,
    lengths: list[int],
    queries: int,
    k: int,
    heads: int,
    masked: bool,
    bias: bool,
    dtype: torch.dtype,
) -> None:
    attention = make_attention(
        "linear", sharing, k, N, WIDTH, heads, mask_empty_slots=masked, dtype=dtype, encoder_decoder_attention=True
    )
    key = torch.randn(max(lengths), len(lengths), WIDTH, dtype=dtype, requires_grad=True)
    query = torch.randn(queries, len(lengths), WIDTH, dtype=dtype, requires_grad=True)
    linears = attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj
    inputs = [query, key, attention.key_projection.weight, attention.value_projection.weight]
    inputs += [linear.weight for linear in linears]
    if bias:
        inputs += [linear.bias for linear in linears]
    else:
        for linear in linears:
            torch.nn.init.zeros_(linear.bias)
    expected = reference_attention(attention, query, key, lengths)
    if not bias:
        for linear in linears:
            linear.bias = None
    mask = torch.arange(len(key)) >= torch.tensor(lengths)[:, None]
    with pytest.MonkeyPatch.context() as patch:
        always(patch, True)
        out, weights = attention(query, key, key, key_padding_mask=mask, static_kv=True, need_weights=False)
    assert weights is None
    tolerance = {"rtol": 1e-8, "atol": 1e-8} if dtype == torch.float64 else {"rtol": 5e-3, "atol": 5e-3}
    torch.testing.assert_close(out, expected, **tolerance)
    upstream = torch.randn_like(out)
    # the key bias drops out of the softmax, with a gradient of zero that torch's DDP sees
    gradients = [torch.autograd.grad(y, inputs, upstream) for y in (out, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.parametrize("sharing", SHARINGS)
@given(
    queries=st.integers(1, N),
    n=st.integers(1, N),
    k=st.integers(1, N),
    heads=st.sampled_from([1, 2, 4]),
    masked=st.booleans(),
)
def test_the_rule_takes_the_fewer_multiplications(
    sharing: str, queries: int, n: int, k: int, heads: int, masked: bool
) -> None:
    attention = make_attention(
        "linear", sharing, k, N, WIDTH, heads, mask_empty_slots=masked, encoder_decoder_attention=True
    )
    query, key = (torch.randn(length, 2, WIDTH, dtype=torch.float64) for length in (queries, n))
    operations = {}
    for projecting in (False, True):
        with pytest.MonkeyPatch.context() as patch, FlopCounterMode(display=False) as counter:
            always(patch, projecting)
            # the products inside torch's fused kernel are not counted
            patch.setattr(F, "scaled_dot_product_attention", lambda q, k, v, **_: q @ k.transpose(2, 3) @ v)
            attention(query, key, key, static_kv=True, need_weights=False)
        operations[projecting] = counter.get_total_flops()
    assert pays(attention, queries, n) == (operations[True] < operations[False])


@pytest.mark.parametrize(
    ("n", "k", "expected"),
    [(24, 64, True), (60, 64, True), (70, 64, False), (32, 32, True), (40, 32, False), (128, 128, False)],
)
def test_where_it_pays(n: int, k: int, expected: bool) -> None:
    """At width 512 with 8 heads."""
    linear = torch.nn.Linear(512, 512, device="meta")
    projection = LinearProjection(k, 256)
    assert projecting_scores_pays((projection, projection), (linear, linear), n, 8, n, False) == expected


def test_only_a_matrix_that_all_share() -> None:
    for kind, sharing in (("linear", "none"), ("pooled-linear", "headwise"), ("max-pool", "headwise")):
        assert not pays(make_attention(kind, sharing, k=N, n=N, embed_dim=WIDTH), 4, 4)


def test_layers_that_do_more_are_called() -> None:
    attention = make_attention("linear", k=N, n=N, embed_dim=WIDTH)
    assert pays(attention, 4, 4)
    attention.v_proj.register_forward_hook(lambda *_: None)
    assert not pays(attention, 4, 4)


def test_the_cache_of_the_search_holds_slots() -> None:
    attention = make_attention("linear", k=N, n=N, embed_dim=WIDTH, encoder_decoder_attention=True)
    assert pays(attention, 1, 2)
    x = torch.randn(2, 1, WIDTH, dtype=torch.float64)
    state: dict[str, dict[str, torch.Tensor | None]] = {}
    out, _ = attention(x[:1], x, x, incremental_state=state, static_kv=True, need_weights=False)
    again, _ = attention(x[:1], None, None, incremental_state=state, static_kv=True, need_weights=False)
    whole, _ = attention(x[:1], x, x, static_kv=True, need_weights=False)
    for y in (again, whole):
        torch.testing.assert_close(y, out)


@pytest.mark.parametrize("p", [0.0, 0.4])
def test_dropout_falls_on_the_probabilities(p: float) -> None:
    """Where it does, the value bias is left with them."""
    torch.manual_seed(1)
    q, k, v = (torch.randn(length, 2, 2, 4, dtype=torch.float64) for length in (3, 5, 5))
    key_matrix, value_matrix = torch.randn(2, 6, 5, dtype=torch.float64)
    bias = torch.randn(8, dtype=torch.float64)
    torch.manual_seed(2)
    out = projected_scores_attention(q, k, v, key_matrix, value_matrix, bias, None, p)
    slot_keys, slot_values = (torch.einsum("sn,nbhd->bhsd", e, x) for e, x in ((key_matrix, k), (value_matrix, v)))
    slot_values = slot_values + bias.view(2, 1, 4)
    torch.manual_seed(2)
    probabilities = torch.softmax(torch.einsum("tbhd,bhsd->bhts", q, slot_keys), -1)
    expected = F.dropout(probabilities, p) @ slot_values
    torch.testing.assert_close(out, expected.permute(2, 0, 1, 3).flatten(2))
