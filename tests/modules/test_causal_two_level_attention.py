"""Causal two levels leak nothing of the future, find everything of the past, and equal themselves step by step."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules import CausalTwoLevelAttention
from linformer_fairseq.modules.ops import thresholds
from linformer_fairseq.modules.ops.thresholds import CPU
from tests.reference import ask_for_a_hidden_token, look_at_inputs, make_attention, padding_mask
from tests.steps import check_steps_equal_one_pass

SIZES = st.fixed_dictionaries(
    {
        "k": st.integers(1, 16),
        "open_slots": st.sampled_from([None, 1, 2, 3]),
        "slot_width": st.sampled_from([None, 1, 2, 3, 4]),
        "block_size": st.sampled_from([None, 1, 3, 4, 40]),
        "exact_below": st.sampled_from([0, 12]),
    }
)
NARROW = {"slot_width": 4, "open_slots": 2, "block_size": 8, "exact_below": 0}


def make(**options: object) -> CausalTwoLevelAttention:
    return make_attention("two-level", causal=True, **options)


@given(
    sizes=SIZES,
    lengths=st.lists(st.integers(1, 48), min_size=2, max_size=2),
    steps=st.lists(st.sampled_from([1, 1, 2, 5, 9, 30]), min_size=1, max_size=5),
)
def test_steps_equal_one_pass(sizes: dict, lengths: list[int], steps: list[int]) -> None:
    check_steps_equal_one_pass(make(n=48, **sizes), [48, *lengths], steps)


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


def test_hypotheses_change_places_multiply_and_vanish() -> None:
    """A search may reorder its hypotheses twice between two tokens, and end some of them."""
    attention = make(n=100, **NARROW)
    state: dict = {}
    history = torch.zeros(0, 3, 8, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    for position in range(100):
        if position:
            for _ in range(position % 3):
                hypotheses = (3, 4, 6, 5, 2)[position % 5] if position % 7 == 0 else history.size(1)
                order = torch.randint(0, history.size(1), (hypotheses,), generator=generator)
                attention.reorder_incremental_state(state, order)
                history = history[:, order]
        token = torch.randn(1, history.size(1), 8, dtype=torch.float64, generator=generator)
        history = torch.cat([history, token])
        out, _ = attention(token, token, token, None, state, need_weights=False)
        expected, _ = attention(history, history, history, need_weights=False)
        torch.testing.assert_close(out, expected[-1:], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_what_is_whole_is_not_copied() -> None:
    """Hypotheses that change places take the places of their windows with them; room doubles now and then."""
    attention = make(n=3000, k=64, exact_below=0)
    x = torch.randn(1500, 4, 8, dtype=torch.float64)
    state: dict = {}
    attention(x[:100], x[:100], x[:100], incremental_state=state)
    stores = []
    for token in x[100:].split(1):
        attention.reorder_incremental_state(state, torch.tensor([1, 1, 3, 0]))
        attention(token, token, token, incremental_state=state, need_weights=False)
        stores.append(attention.cached(state)["history"].keys.data_ptr())
    assert len(dict.fromkeys(stores)) <= 5  # 100 tokens, then 128, 256 and so on


@torch.no_grad()
def test_many_hypotheses_take_their_steps_in_portions() -> None:
    """More than are gathered at a time give what each gives by itself."""
    attention = make(n=128, k=64, slot_width=32, open_slots=1, block_size=32, exact_below=0)
    assert CPU.gathered is not None
    hypotheses = CPU.gathered // (2 * 64 * 4) + 1000  # two heads, two windows of 32 tokens, four features
    x, sentence = torch.randn(128, 4, 8, dtype=torch.float64), torch.randint(4, (hypotheses,))
    expected, expected_weights = attention(x, x, x)
    state: dict = {}
    attention(*(x[:120, sentence],) * 3, incremental_state=state, need_weights=False)
    for position in range(120, 128):
        out, weights = attention(*(x[position, None, sentence],) * 3, incremental_state=state)
        torch.testing.assert_close(out, expected[position, None, sentence], rtol=1e-9, atol=1e-9)
        own = expected_weights[sentence, position, None, : position + 1]
        torch.testing.assert_close(weights, own, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_blocks_choose_alone_as_they_do_together(monkeypatch: pytest.MonkeyPatch) -> None:
    attention, x = make(n=300, **NARROW), torch.randn(300, 2, 8, dtype=torch.float64)
    expected, _ = attention(x, x, x, need_weights=False)
    for scored in (1, 1000, None):
        monkeypatch.setitem(thresholds._BY_TYPE, "cpu", CPU._replace(scored=scored))
        out, _ = attention(x, x, x, need_weights=False)
        torch.testing.assert_close(out, expected)


def test_empty_inputs() -> None:
    for shape in ((0, 2, 8), (5, 0, 8), (1, 0, 8), (40, 0, 8)):
        x = torch.zeros(shape, dtype=torch.float64)
        for state in (None, {}):
            out, _ = make(n=40, **NARROW)(x, x, x, incremental_state=state, need_weights=False)
            assert out.shape == shape


def test_dropout_falls_on_the_weights_of_steps() -> None:
    attention = make(n=40, dropout=0.5, **NARROW)
    x = torch.randn(40, 1, 8, dtype=torch.float64).expand(40, 3000, 8)
    expected = attention(x[:, :1], x[:, :1], x[:, :1])[0][-1]
    state: dict = {}
    attention(x[:39], x[:39], x[:39], incremental_state=state)
    attention.train()
    out = attention(x[39:], x[39:], x[39:], incremental_state=state)[0][0]
    assert not torch.equal(out[0], out[1])
    torch.testing.assert_close(out.mean(0, keepdim=True), expected, rtol=0, atol=0.1 * expected.std().item())


def test_refusals() -> None:
    for options, sentence in (
        ({"self_attention": False, "encoder_decoder_attention": True}, "attention is self-attention; pass"),
        ({"open_slots": 0}, "--linformer-open-slots must be at least 1, not 0"),
        ({"exact_below": -1}, "--linformer-exact-below must be at least 0, not -1"),
        ({"projected_dim": 9}, "k = 9 is larger than the longest length N = 8"),
    ):
        settings = {"self_attention": True, "projected_dim": 4, "max_positions": 8, **options}
        with pytest.raises(ValueError, match=sentence):
            CausalTwoLevelAttention(8, 2, **settings)
    x: Tensor = torch.randn(9, 2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="a key for every query, not 8 for 9"):
        make()(x, x[:8], x[:8])
