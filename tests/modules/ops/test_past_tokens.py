"""Tokens of a search are put in order and appended as a copy in two steps would be."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.past_tokens import PastTokens


@given(orders=st.lists(st.lists(st.integers(0, 2), min_size=3, max_size=3), max_size=3), gradient=st.booleans())
def test_tokens_come_after_those_of_their_hypothesis(orders: list[list[int]], gradient: bool) -> None:
    """After any number of new orders, with a gradient and without."""
    keys, values, own_keys, own_values = (torch.randn(3, 2, n, 4, requires_grad=True) for n in (5, 5, 1, 1))
    past, rows = PastTokens(keys, values), torch.arange(3)
    for order in orders:
        past, rows = past.reordered(torch.tensor(order)), rows[order]
    with torch.set_grad_enabled(gradient):
        found = past.with_tokens(own_keys, own_values)
        expected = [torch.cat([x[rows], own], 2) for x, own in ((keys, own_keys), (values, own_values))]
    assert found.order is None
    assert torch.equal(found.keys, expected[0])
    assert torch.equal(found.values, expected[1])
    if gradient:
        (gradients,) = torch.autograd.grad(found.keys.square().sum(), keys)
        torch.testing.assert_close(gradients, torch.autograd.grad(expected[0].square().sum(), keys)[0])


@pytest.mark.parametrize("dtypes", [(torch.float32, torch.bfloat16), (torch.float16, torch.float32)])
@torch.no_grad()
def test_precision_may_change_between_tokens(dtypes: tuple[torch.dtype, torch.dtype]) -> None:
    """As where autocast begins after the first tokens."""
    past, own = (torch.ones(2, 1, 3, 4, dtype=dtype) for dtype in dtypes)
    found = PastTokens(past, past).reordered(torch.tensor([1, 0])).with_tokens(own, own)
    assert found.keys.shape == (2, 1, 6, 4)
    assert found.keys.dtype == torch.float32
