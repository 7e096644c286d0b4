"""Both orders of products give the same slots, and the rule takes the cheaper one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import key_value_slots as module
from linformer_fairseq.modules.forward_cache import ForwardCache
from linformer_fairseq.modules.key_value_slots import key_value_slots, slots_first
from linformer_fairseq.modules.linformer_attention import SHARINGS
from tests.reference import PROJECTIONS, assert_same_gradients, make_attention, naive_attention, padding_mask

N = 24
every_linear_kind = pytest.mark.parametrize("kind", [kind for kind, p in PROJECTIONS.items() if p.is_linear])
any_sharing = st.sampled_from(SHARINGS)


def comes_first(attention: LinformerMultiheadAttention, n: int) -> bool:
    projections = attention.key_projection, attention.value_projection
    return slots_first(projections, (attention.k_proj, attention.v_proj), n, same_tokens=True)


def slots_of(first: bool, attention: LinformerMultiheadAttention, x: Tensor, lengths: list[int]) -> tuple[Tensor, ...]:
    """Returns slot keys and slot values, computed in this order of products from keys that are the values too."""
    projections = attention.key_projection, attention.value_projection
    linears = attention.k_proj, attention.v_proj
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "slots_first", lambda *_: first)
        return key_value_slots(projections, linears, attention.num_heads, x, x, torch.tensor(lengths), ForwardCache())


@every_linear_kind
@given(
    lengths=st.lists(st.integers(1, N), min_size=1, max_size=3),
    k=st.integers(1, N),
    sharing=any_sharing,
    bias=st.booleans(),
)
def test_both_orders_give_the_same(kind: str, lengths: list[int], k: int, sharing: str, bias: bool) -> None:
    attention = make_attention(kind, sharing, k=k, n=N, bias=bias)
    x = torch.randn(max(lengths), len(lengths), 8, dtype=torch.float64)
    x = x.masked_fill(padding_mask(lengths).t()[..., None], 0.0).requires_grad_()
    both = [slots_of(first, attention, x, lengths) for first in (True, False)]
    for one, other in zip(*both, strict=True):
        assert one.shape == (len(lengths), 2, attention.key_projection.num_slots(len(x)), 4)
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
        assert_same_gradients(one, other, [x, *attention.parameters()], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("kind", ["linear", "pooled-linear", "mean-pool"])
@given(n=st.integers(1, N), k=st.integers(1, N), sharing=any_sharing)
def test_the_rule_takes_the_fewer_multiplications(kind: str, n: int, k: int, sharing: str) -> None:
    attention = make_attention(kind, sharing, k=k, n=N)
    x = torch.randn(n, 3, 8, dtype=torch.float64)
    operations = {}
    for first in (True, False):
        with FlopCounterMode(display=False) as counter:
            # sentences of different lengths, so that every one of them has a pooling matrix of its own
            slots_of(first, attention, x, [n, max(1, n - 1), n])
        operations[first] = counter.get_total_flops()
    assert operations[comes_first(attention, n)] == min(operations.values())


def test_maxima_have_but_one_order() -> None:
    """Max pooling comes before the linear layers where heads share it, and after them otherwise."""
    for sharing, expected in (("headwise", True), ("none", False)):
        attention = make_attention("max-pool", sharing, k=8, n=N)
        assert [comes_first(attention, n) for n in (2, 24)] == [expected] * 2


def test_linear_layers_that_do_more_are_called() -> None:
    attention = make_attention("linear", "headwise", k=20, n=N)
    x = torch.randn(5, 1, 8, dtype=torch.float64)
    assert not comes_first(attention, 5)
    called = []
    attention.v_proj.register_forward_hook(lambda *_: called.append(1))
    assert comes_first(attention, 5)
    expected = naive_attention(attention, x, x, [5])[0]
    called.clear()
    torch.testing.assert_close(attention(x, x, x)[0], expected)
    assert called


@pytest.mark.parametrize("causal", [False, True])
def test_short_batches_do_not_pay_for_masked_slots(causal: bool) -> None:
    """A batch of 6 tokens takes as many multiplications with 20 masked slots as with 6."""
    x = torch.randn(6, 2, 8, dtype=torch.float64)
    operations = []
    for k in (6, 20):
        attention = make_attention("linear", k=k, n=N, mask_empty_slots=True, causal=causal)
        with FlopCounterMode(display=False) as counter:
            attention(x, x, x)  # with weights, as the counter does not see into torch's fused kernel
        operations.append(counter.get_total_flops())
    assert operations[0] == operations[1] > 0
