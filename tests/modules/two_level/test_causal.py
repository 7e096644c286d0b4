"""Causal two levels leak nothing of the future, and find everything of the past."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules import CausalTwoLevelAttention
from linformer_fairseq.modules.two_level import arithmetic
from tests.modules.two_level.sizes import NARROW, SIZES
from tests.reference import ask_for_a_hidden_token, look_at_inputs, make_attention, padding_mask


def make(**options: object) -> CausalTwoLevelAttention:
    return make_attention("two-level", causal=True, **options)


@given(sizes=SIZES, changed=st.integers(0, 49), length=st.integers(1, 50))
def test_nothing_of_the_future_matters(sizes: dict, changed: int, length: int) -> None:
    """Not even for what is opened: the difference is exactly 0, and so are gradients."""
    attention = make(n=50, **sizes)
    mask = padding_mask([50, length])
    x = torch.randn(50, 2, 8, dtype=torch.float64, requires_grad=True)
    other = x.detach().clone()
    other[changed:] = 10 * torch.randn_like(other[changed:])
    (out, weights), (other_out, other_weights) = (attention(y, y, y, mask) for y in (x, other))
    assert torch.equal(out[:changed], other_out[:changed])
    assert torch.equal(weights[:, :changed], other_weights[:, :changed])
    assert not weights.triu(1).any()
    if changed:
        (gradient,) = torch.autograd.grad(out[:changed].square().sum(), x)
        assert not gradient[changed:].any()


def test_all_of_the_past_matters() -> None:
    attention = make(n=100, **NARROW)
    x = torch.randn(100, 1, 8, dtype=torch.float64)
    for changed in (0, 17, 50):
        other = x.clone()
        other[changed] += 1
        difference = (attention(x, x, x)[0] - attention(other, other, other)[0]).abs().amax((1, 2))
        assert (difference[changed:] > 1e-9).all()


@pytest.mark.parametrize("in_steps", [False, True])
def test_the_first_token_is_found_at_position_2000(in_steps: bool) -> None:
    attention = make(k=64, n=2048, num_heads=1, exact_below=256)
    look_at_inputs(attention)
    keys = torch.zeros(2001, 1, 8, dtype=torch.float64)
    keys[0, :, 0] = 500.0
    queries = torch.zeros_like(keys)
    queries[1800:, :, 0] = 1.0
    state: dict | None = {} if in_steps else None
    if state is not None:
        attention(queries[:1990], keys[:1990], keys[:1990], incremental_state=state)
        rows = [attention(queries[[i]], keys[[i]], keys[[i]], None, state)[1][0, 0] for i in range(1990, 2001)]
        weights = rows[-1]
    else:
        weights = attention(queries, keys, keys)[1][0, 2000]
    assert attention.exact < 1800
    assert weights[0] > 0.99


@torch.no_grad()
def test_a_token_is_found_that_its_window_hides() -> None:
    attention = make(n=256, num_heads=1, **NARROW)
    x = ask_for_a_hidden_token(attention, 256, 21)
    _, weights = attention(x, x, x)
    assert (weights[0, 32:, 21] > 0.99).all()


@torch.no_grad()
def test_blocks_choose_alone_as_they_do_together(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, x = make(n=300, **NARROW), torch.randn(300, 2, 8, dtype=torch.float64)
    expected, _ = attention(x, x, x, need_weights=False)
    for scored in (1, 1000):
        monkeypatch.setattr(arithmetic, "SCORES_AT_A_TIME", scored)
        out, _ = attention(x, x, x, need_weights=False)
        torch.testing.assert_close(out, expected)
