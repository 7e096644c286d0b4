"""Projecting scores instead of tokens equals the naive reference, and is chosen where it costs less."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import LinearProjection, source_attention
from linformer_fairseq.modules import linformer_attention as module
from linformer_fairseq.modules.key_value_slots import projecting_scores_pays
from linformer_fairseq.modules.ops.naive import linformer_attention
from linformer_fairseq.modules.ops.projected_scores import projected_scores_attention
from linformer_fairseq.modules.ops.thresholds import CPU
from tests.reference import assert_same_gradients, make_attention

WIDTH, N = 16, 24


def pays(attention: LinformerMultiheadAttention, queries: int, n: int) -> bool:
    projections = attention.key_projection, attention.value_projection
    linears = attention.k_proj, attention.v_proj
    return projecting_scores_pays(projections, linears, queries, attention.num_heads, n, True, CPU)


@given(
    filled=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    queries=st.integers(1, 12),
    n=st.integers(1, 12),
    heads=st.sampled_from([1, 2, 3]),
    bias=st.booleans(),
)
def test_values_and_gradients_equal_the_naive_reference(
    filled: list[int], queries: int, n: int, heads: int, bias: bool
) -> None:
    batch, slots = len(filled), max(filled)
    shapes = [(queries, batch, heads, 4), *[(n, batch, heads, 4)] * 2, *[(slots, n)] * 2, (heads * 4,)]
    tensors = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    query, key, value, e, f, value_bias = tensors
    mask = torch.arange(slots) < torch.tensor(filled)[:, None]
    late = value_bias if bias else None
    out = projected_scores_attention(query, key, value, e, f, late, mask[:, None, None], 0.0)

    def head(b: int, h: int) -> Tensor:
        q, k, v = (x[:, b, h] for x in (query * 2.0, key, value))  # queries come times 1/√d
        return linformer_attention(q, k, v, e[: filled[b]], f[: filled[b]])[0]

    expected = torch.stack([torch.cat([head(b, h) for h in range(heads)], 1) for b in range(batch)], 1)
    expected = expected + value_bias if bias else expected
    torch.testing.assert_close(out, expected)
    assert_same_gradients(out, expected, tensors)


@given(
    queries=st.integers(1, N),
    n=st.integers(1, N),
    k=st.integers(1, N),
    heads=st.sampled_from([1, 2, 4]),
    masked=st.booleans(),
    sharing=st.sampled_from(["headwise", "key-value"]),
)
def test_the_rule_takes_the_fewer_multiplications(
    queries: int, n: int, k: int, heads: int, masked: bool, sharing: str
) -> None:
    attention = make_attention(
        "linear", sharing, k, N, WIDTH, heads, mask_empty_slots=masked, encoder_decoder_attention=True
    )
    query, key = (torch.randn(length, 2, WIDTH, dtype=torch.float64) for length in (queries, n))
    operations = {}
    for projecting in (False, True):
        with pytest.MonkeyPatch.context() as patch, FlopCounterMode(display=False) as counter:
            patch.setattr(source_attention, "folding_pays", lambda *_: False)
            patch.setattr(module, "projecting_scores_pays", lambda *_, projecting=projecting: projecting)
            # the products inside torch's fused kernel are not counted
            patch.setattr(F, "scaled_dot_product_attention", lambda q, k, v, **_: q @ k.transpose(2, 3) @ v)
            attention(query, key, key, static_kv=True, need_weights=False)
        operations[projecting] = counter.get_total_flops()
    assert pays(attention, queries, n) == (operations[True] < operations[False])


class Unlike(LinearProjection):
    """A projection that may compute something else when it is called."""


def test_only_for_a_plain_matrix_that_all_share() -> None:
    for kind, sharing in (("linear", "none"), ("pooled-linear", "headwise"), ("max-pool", "headwise")):
        assert not pays(make_attention(kind, sharing, k=N, n=N), 4, 4)
    attention = make_attention("linear", k=N, n=N)
    assert pays(attention, 4, 4)
    attention.key_projection = Unlike(N, N)
    assert not pays(attention, 4, 4)


@pytest.mark.parametrize("layer", ["k_proj", "v_proj"])
def test_layers_that_do_more_are_called(layer: str) -> None:
    attention = make_attention("linear", k=N, n=N)
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


def test_dropout_falls_on_the_probabilities() -> None:
    """The value bias is multiplied by the sum of the probabilities that dropout leaves."""
    q, k, v = (torch.randn(length, 2, 2, 4, dtype=torch.float64) for length in (3, 5, 5))
    key_matrix, value_matrix = torch.randn(2, 6, 5, dtype=torch.float64)
    bias = torch.randn(8, dtype=torch.float64)
    torch.manual_seed(2)
    out = projected_scores_attention(q, k, v, key_matrix, value_matrix, bias, None, 0.4)
    slot_keys, slot_values = (torch.einsum("sn,nbhd->bhsd", e, x) for e, x in ((key_matrix, k), (value_matrix, v)))
    slot_values = slot_values + bias.view(2, 1, 4)
    torch.manual_seed(2)
    probabilities = torch.softmax(torch.einsum("tbhd,bhsd->bhts", q, slot_keys), -1)
    expected = F.dropout(probabilities, 0.4) @ slot_values
    torch.testing.assert_close(out, expected.permute(2, 0, 1, 3).flatten(2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_beyond_half_precision(dtype: torch.dtype) -> None:
    tokens = [torch.randn(length, 2, 2, 4).to(dtype) for length in (3, 5, 5)]
    tokens[:2] = [300 * x for x in tokens[:2]]
    matrices = [torch.randn(6, 5).to(dtype) for _ in range(2)]
    bias = torch.randn(8).to(dtype)
    q, k = (x.double().permute(1, 2, 0, 3) for x in tokens[:2])
    assert (q @ k.transpose(2, 3)).abs().max() > 65504
    expected = projected_scores_attention(*(x.double() for x in (*tokens, *matrices, bias)), None, 0.0)
    out = projected_scores_attention(*tokens, *matrices, bias, None, 0.0)
    assert out.dtype is dtype
    assert (out - expected).norm() < 0.01 * expected.norm()
    with torch.autocast("cpu", dtype):
        out = projected_scores_attention(*(x.float() for x in (*tokens, *matrices, bias)), None, 0.0)
    assert (out - expected).norm() < 0.01 * expected.norm()
