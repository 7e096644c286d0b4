"""Projecting scores instead of tokens gives the attention of the naive reference, and is taken where it costs less."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import LinearProjection, source_attention
from linformer_fairseq.modules import linformer_attention as module
from linformer_fairseq.modules.ops.projected_scores import projected_scores_attention, projecting_scores_pays
from tests.reference import make_attention, naive_attention

WIDTH, N = 16, 24
SHARINGS = ("headwise", "key-value")


def pays(attention: LinformerMultiheadAttention, queries: int, n: int) -> bool:
    projections = attention.key_projection, attention.value_projection
    linears = attention.k_proj, attention.v_proj
    return projecting_scores_pays(projections, linears, queries, attention.num_heads, n, True)


def always(patch: pytest.MonkeyPatch, projecting: bool) -> None:
    patch.setattr(source_attention, "folding_pays", lambda *_: False)
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
    expected = naive_attention(attention, query, key, lengths)[0]
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
    gradients = [
        torch.autograd.grad(y, inputs, upstream, allow_unused=True, materialize_grads=True) for y in (out, expected)
    ]
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


class Halved(LinearProjection):
    """Computes something else, which calling it would tell."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        return super().forward(x, lengths) / 2


def test_only_a_matrix_that_all_share() -> None:
    for kind, sharing in (("linear", "none"), ("pooled-linear", "headwise"), ("max-pool", "headwise")):
        assert not pays(make_attention(kind, sharing, k=N, n=N, embed_dim=WIDTH), 4, 4)
    attention = make_attention("linear", k=N, n=N, embed_dim=WIDTH)
    attention.key_projection = Halved(N, N)
    assert not pays(attention, 4, 4)


@pytest.mark.parametrize("layer", ["k_proj", "v_proj"])
def test_layers_that_do_more_are_called(layer: str) -> None:
    attention = make_attention("linear", k=N, n=N, embed_dim=WIDTH)
    assert pays(attention, 4, 4)
    linear = getattr(attention, layer)
    for register in (
        linear.register_forward_pre_hook,
        linear.register_forward_hook,
        linear.register_full_backward_hook,
        linear.register_full_backward_pre_hook,
    ):
        handle = register(lambda *_: None)
        assert not pays(attention, 4, 4)
        handle.remove()
    assert pays(attention, 4, 4)


def test_folding_comes_before() -> None:
    attention = make_attention("linear", k=2, n=64, embed_dim=WIDTH)
    x = torch.randn(64, 2, WIDTH, dtype=torch.float64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "projecting_scores_pays", lambda *_: True)
        patch.setattr(module, "projected_scores_attention", None)
        attention(x, x, x, need_weights=False)


@given(
    lengths=st.lists(st.integers(1, N), min_size=1, max_size=3),
    extra=st.integers(0, 3),
    queries=st.integers(1, 12),
    masked=st.booleans(),
)
def test_keys_and_values_of_their_own(lengths: list[int], extra: int, queries: int, masked: bool) -> None:
    """Of other widths than the queries, and with padding that reaches beyond N."""
    attention = make_attention(
        "linear", k=8, n=N, embed_dim=WIDTH, kdim=6, vdim=10, mask_empty_slots=masked, encoder_decoder_attention=True
    )
    n = N + extra
    mask = torch.arange(n) >= torch.tensor(lengths)[:, None]
    query, key, value = inputs = [
        torch.randn(length, len(lengths), width, dtype=torch.float64, requires_grad=True)
        for length, width in ((queries, WIDTH), (n, 6), (n, 10))
    ]
    outs = []
    for projecting in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            always(patch, projecting)
            out, _ = attention(query, key, value, key_padding_mask=mask, static_kv=True, need_weights=False)
            outs.append(out)
    torch.testing.assert_close(*outs)
    upstream = torch.randn_like(outs[0])
    gradients = [torch.autograd.grad(out, [*inputs, *attention.parameters()], upstream) for out in outs]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_hypotheses_that_share_their_keys_share_slots() -> None:
    attention = make_attention("linear", k=20, n=N, embed_dim=WIDTH, encoder_decoder_attention=True)
    assert pays(attention, 3, 5)
    query, key = (torch.randn(length, 4, WIDTH, dtype=torch.float64) for length in (3, 5))
    key = key[:, ::2].repeat_interleave(2, 1)
    expected, _ = attention(query, key, key, static_kv=True, need_weights=False)
    attention.set_beam_size(2)
    out, _ = attention(query, key, key, static_kv=True, need_weights=False)
    torch.testing.assert_close(out, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision(dtype: torch.dtype, autocast: bool) -> None:
    attention = make_attention("linear", k=20, n=N, embed_dim=WIDTH, random=False, dtype=torch.float32, dropout=0.0)
    assert pays(attention, 5, 5)
    x = torch.randn(5, 2, WIDTH)
    expected, _ = attention(x, x, x, need_weights=False)
    if not autocast:
        attention, x = attention.to(dtype), x.to(dtype)
    x.requires_grad_()
    with torch.autocast("cpu", dtype=dtype, enabled=autocast):
        out, _ = attention(x, x, x, need_weights=False)
    assert out.dtype == dtype
    torch.testing.assert_close(out.float(), expected, rtol=0.03, atol=0.03)
    out.float().square().sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.abs().sum() > 0


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
    """The value bias comes times what is left of them."""
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


def test_dropout_of_the_attention() -> None:
    attention = make_attention("linear", k=20, n=N, embed_dim=WIDTH, dropout=0.999).train()
    assert pays(attention, 5, 5)
    x = torch.randn(5, 50, WIDTH, dtype=torch.float64)
    out, _ = attention(x, x, x, need_weights=False)
    # nearly every query is left with the bias alone
    alone = (out - attention.out_proj.bias).abs().amax(-1) < 1e-12
    assert alone.double().mean() > 0.9
