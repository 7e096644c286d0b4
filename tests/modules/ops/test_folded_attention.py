"""Folding the linear layers into the slots changes nothing but the number of multiplications."""

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq.modules.ops.folded_attention import folded_attention, folding_pays
from linformer_fairseq.modules.ops.naive import full_attention
from linformer_fairseq.modules.ops.thresholds import CPU
from tests.reference import assert_same_gradients

WIDTH = 8


def layers(bias: bool = True) -> tuple[nn.Linear, nn.Linear]:
    """Returns the linear layers of the queries and of the output."""
    q_proj, out_proj = (nn.Linear(WIDTH, WIDTH, bias=bias).double() for _ in range(2))
    return q_proj, out_proj


def inputs(queries: int, batch: int, slots: int, heads: int) -> list[Tensor]:
    """Returns queries before their linear layer, and the keys and values of slots."""
    shapes = [(queries, batch, WIDTH), *[(batch, heads, slots, WIDTH // heads)] * 2]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


@given(
    filled=st.lists(st.integers(1, 8), min_size=1, max_size=3),
    queries=st.integers(1, 12),
    heads=st.sampled_from([1, 2, 4]),
    bias=st.booleans(),
)
def test_values_and_gradients_equal_the_naive_reference(
    filled: list[int], queries: int, heads: int, bias: bool
) -> None:
    q_proj, out_proj = layers(bias)
    query, keys, values = tensors = inputs(queries, len(filled), max(filled), heads)
    mask = torch.arange(max(filled)) < torch.tensor(filled)[:, None]
    out = folded_attention(query, keys, values, mask[:, None, None], q_proj, out_proj, lambda x: x)

    def sentence(b: int, slots: int) -> Tensor:
        rows = q_proj(query[:, b]).chunk(heads, 1)
        return torch.cat(
            [full_attention(q, keys[b, h, :slots], values[b, h, :slots])[0] for h, q in enumerate(rows)], 1
        )

    expected = out_proj(torch.stack([sentence(b, slots) for b, slots in enumerate(filled)], 1))
    torch.testing.assert_close(out, expected)
    assert_same_gradients(out, expected, [*tensors, *q_proj.parameters(), *out_proj.parameters()])


def count(product: Callable[[], Tensor]) -> int:
    """Returns the number of floating-point operations of a product."""
    with FlopCounterMode(display=False) as counter:
        product()
    return counter.get_total_flops()


@given(queries=st.integers(1, 40), slots=st.integers(1, 16), heads=st.sampled_from([1, 2, 4, 8]))
def test_the_rule_takes_the_fewer_multiplications(queries: int, slots: int, heads: int) -> None:
    """The rule counts the folding itself, whose cost does not depend on the number of queries, twice."""
    q_proj, out_proj = layers()
    query, keys, values = inputs(queries, 2, slots, heads)
    folded, folding = (
        count(lambda x=x: folded_attention(x, keys, values, None, q_proj, out_proj, lambda y: y))
        for x in (query, query[:0])
    )

    def apart() -> Tensor:
        q = q_proj(query).unflatten(2, (heads, -1)).permute(1, 2, 0, 3)
        return out_proj((q @ keys.transpose(2, 3) @ values).permute(2, 0, 1, 3).flatten(2))

    assert 0 < folding < folded
    assert folding_pays(queries, slots, heads, query.size(2), CPU) == (folded + folding < count(apart))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_beyond_half_precision(dtype: torch.dtype) -> None:
    q_proj, out_proj = (layer.to(dtype) for layer in layers())
    query, keys, values = (x.detach().to(dtype) for x in inputs(6, 2, 5, 2))
    query, keys = query * 300, keys * 300
    exact = [copy.deepcopy(layer).double() for layer in (q_proj, out_proj)]
    scores = exact[0](query.double()).unflatten(2, (2, -1)).permute(1, 2, 0, 3) @ keys.double().transpose(2, 3) / 2
    assert scores.abs().max() > 65504
    mask = torch.ones(2, 1, 1, 5, dtype=torch.bool)
    out = folded_attention(query, keys, values, mask, q_proj, out_proj, lambda x: x)
    expected = folded_attention(query.double(), keys.double(), values.double(), mask, *exact, lambda x: x)
    assert out.dtype is dtype
    assert (out - expected).norm() < 0.01 * expected.norm()
    with torch.autocast("cpu", dtype):
        single = [copy.deepcopy(layer).float() for layer in (q_proj, out_proj)]
        out = folded_attention(query.float(), keys, values, mask, *single, lambda x: x)
    assert out.dtype is dtype
    assert (out - expected).norm() < 0.01 * expected.norm()
