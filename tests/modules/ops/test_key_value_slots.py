"""Both orders of products give the slots of the naive reference, and the rule takes the cheaper one."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from linformer_fairseq import LinformerMultiheadAttention
from linformer_fairseq.modules import LinearProjection, linformer_attention
from linformer_fairseq.modules.forward_cache import ForwardCache
from linformer_fairseq.modules.ops import key_value_slots as module
from linformer_fairseq.modules.ops.key_value_slots import key_value_slots, slots_first
from tests.reference import PROJECTIONS, make_attention, naive_attention

SHARINGS = ("none", "headwise", "key-value")
everything = pytest.mark.parametrize("sharing", SHARINGS)
every_kind = pytest.mark.parametrize("kind", PROJECTIONS)
N = 24


def comes_first(attention: LinformerMultiheadAttention, n: int, same_tokens: bool = True) -> bool:
    projections = attention.key_projection, attention.value_projection
    return slots_first(projections, (attention.k_proj, attention.v_proj), n, same_tokens)


def slots_of(attention: LinformerMultiheadAttention, x: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, ...]:
    """Slot keys and values of keys that are the values."""
    projections = attention.key_projection, attention.value_projection
    linears = attention.k_proj, attention.v_proj
    return key_value_slots(projections, linears, attention.num_heads, x, x, torch.tensor(lengths), ForwardCache())


@every_kind
@everything
@given(
    lengths=st.lists(st.integers(1, N), min_size=1, max_size=3),
    k=st.integers(1, N),
    masked=st.booleans(),
    dtype=st.sampled_from([torch.float64, torch.float32]),
)
def test_values_and_gradients_equal_naive_reference(
    kind: str, sharing: str, lengths: list[int], k: int, masked: bool, dtype: torch.dtype
) -> None:
    attention = make_attention(kind, sharing, k=k, n=N, mask_empty_slots=masked, dtype=dtype)
    x = torch.randn(max(lengths), len(lengths), 8, dtype=dtype, requires_grad=True)
    mask = torch.arange(len(x)) >= torch.tensor(lengths)[:, None]
    inputs = [x, *attention.parameters()]
    upstream = torch.randn(x.shape, dtype=dtype).masked_fill(mask.t()[:, :, None], 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linformer_attention, "projecting_scores_pays", lambda *_: False)
        out, _ = attention(x, x, x, key_padding_mask=mask, need_weights=False)
    expected = naive_attention(attention, x, x, lengths)[0]
    tolerance = {"rtol": 1e-9, "atol": 1e-9} if dtype == torch.float64 else {"rtol": 2e-3, "atol": 2e-3}
    torch.testing.assert_close(out, expected, **tolerance)
    # a tied maximum may pass its gradient on to either token
    gradients, wanted = (
        torch.autograd.grad(y, inputs, upstream, allow_unused=True, materialize_grads=True) for y in (out, expected)
    )
    for one, other in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


@pytest.mark.parametrize("kind", [kind for kind, projection in PROJECTIONS.items() if projection.is_linear])
@everything
@pytest.mark.parametrize(("n", "k"), [(24, 3), (5, 20), (12, 12)])
def test_both_orders_give_the_same(kind: str, sharing: str, n: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    attention = make_attention(kind, sharing, k=k, n=N)
    lengths = [n, max(1, n - 2)]
    x = torch.randn(n, 2, 8, dtype=torch.float64)
    x[lengths[1] :, 1] = 0
    both = []
    for first in (True, False):
        monkeypatch.setattr(module, "slots_first", lambda *_, first=first: first)
        both.append(slots_of(attention, x, lengths))
    for one, other in zip(*both, strict=True):
        assert one.shape == (2, 2, attention.key_projection.num_slots(n), 4)
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", ["linear", "pooled-linear", "mean-pool"])
@everything
@given(n=st.integers(1, N), k=st.integers(1, N))
def test_the_rule_takes_the_fewer_multiplications(kind: str, sharing: str, n: int, k: int) -> None:
    attention = make_attention(kind, sharing, k=k, n=N)
    x = torch.randn(n, 3, 8, dtype=torch.float64)
    # sentences of different lengths, so that every one of them has a pooling matrix of its own
    lengths = [n, max(1, n - 1), n]
    operations = {}
    with pytest.MonkeyPatch.context() as patch:
        for first in (True, False):
            patch.setattr(module, "slots_first", lambda *_, first=first: first)
            with FlopCounterMode(display=False) as counter:
                slots_of(attention, x, lengths)
            operations[first] = counter.get_total_flops()
    assert operations[comes_first(attention, n)] == min(operations.values())


@pytest.mark.parametrize(
    ("sharing", "n", "k", "expected"),
    [
        ("headwise", 24, 8, True),
        ("headwise", 8, 8, True),
        ("headwise", 7, 8, False),
        ("key-value", 7, 8, True),  # one product with E instead of two
        ("key-value", 3, 20, False),
        ("none", 24, 4, True),  # two heads of four features: slots first for k < 8 where n is large
        ("none", 24, 12, False),
    ],
)
def test_where_slots_come_first(sharing: str, n: int, k: int, expected: bool) -> None:
    assert comes_first(make_attention("linear", sharing, k=k, n=N), n) == expected


@pytest.mark.parametrize(("sharing", "expected"), [("headwise", True), ("none", False)])
def test_maxima_have_but_one_order(sharing: str, expected: bool) -> None:
    for n in (2, 24):
        assert comes_first(make_attention("max-pool", sharing, k=8, n=N), n) == expected


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


@pytest.mark.parametrize(("n", "batch"), [(24, 4), (3, 1)])
def test_one_product_for_e_and_f_is_both(n: int, batch: int) -> None:
    keys, values = (LinearProjection(3, N).double() for _ in range(2))
    x = torch.randn(n, batch, 1, 5, dtype=torch.float64)
    lengths = torch.full((batch,), n)
    for requires_grad in (False, True):  # with a gradient it is always one
        x.requires_grad_(requires_grad)
        together = keys.with_values(values, x, lengths)
        for one, projection in zip(together, (keys, values), strict=True):
            torch.testing.assert_close(one, projection(x, lengths))


def test_short_batches_do_not_pay_for_masked_slots() -> None:
    """k = 20 slots cost 6 tokens what k = 6 would, causally too."""
    x = torch.randn(6, 2, 8, dtype=torch.float64)
    for causal in (False, True):
        operations = []
        for k in (6, 20):
            attention = make_attention("linear", "headwise", k=k, n=N, mask_empty_slots=True, causal=causal)
            with FlopCounterMode(display=False) as counter:
                attention(x, x, x)  # with weights, as the counter does not see into torch's fused kernel
            operations.append(counter.get_total_flops())
        assert operations[0] == operations[1] > 0
