"""Windows are where their formula says, in encoders and decoders, in one pass and in the steps of a search."""

from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules import WindowAttention
from tests.memory import peak_bytes
from tests.reference import assert_same_gradients, make_attention, naive_attention, padding_mask
from tests.steps import check_steps_equal_one_pass

PLACES = ("encoder", "decoder")
every_place = pytest.mark.parametrize("place", PLACES)
SIZES = st.sampled_from([1, 2, 5, 16, 33, 64, 200])


def make(place: str, **options: object) -> WindowAttention:
    return make_attention("window", causal=place == "decoder", **options)


@every_place
@given(size=SIZES, lengths=st.lists(st.integers(1, 150), min_size=2, max_size=2))
def test_many_blocks_equal_the_naive_reference(place: str, size: int, lengths: list[int]) -> None:
    attention, mask = make(place, window_size=size), padding_mask(lengths)
    x = torch.randn(max(lengths), 2, 8, dtype=torch.float64, requires_grad=True)
    expected, expected_weights = naive_attention(attention, x, x, lengths)
    expected = expected.masked_fill(mask.t()[..., None], 0.0)
    for need_weights in (False, True):
        out, weights = attention(x, x, x, mask, need_weights=need_weights, need_head_weights=need_weights)
        out = out.masked_fill(mask.t()[..., None], 0.0)
        torch.testing.assert_close(out, expected, rtol=1e-9, atol=1e-9)
        assert_same_gradients(out, expected, [x, *attention.parameters()], rtol=1e-8, atol=1e-8)
    weights = weights.masked_fill(mask[..., None], 0.0)
    torch.testing.assert_close(weights, expected_weights, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("place", "tokens"),
    [
        ("encoder", {0: range(0, 4), 10: range(7, 14), 99: range(96, 100)}),
        ("decoder", {0: range(0, 1), 10: range(5, 11), 99: range(94, 100)}),
    ],
)
def test_where_windows_are(place: str, tokens: dict[int, range]) -> None:
    x = torch.randn(100, 1, 8, dtype=torch.float64)
    weights = make(place, window_size=6)(x, x, x)[1][0]
    for query, window in tokens.items():
        assert weights[query].nonzero()[:, 0].tolist() == [*window]


@every_place
def test_wide_windows_are_full_attention(place: str) -> None:
    x = torch.randn(50, 2, 8, dtype=torch.float64)
    narrow, wide = (make(place, window_size=size, random=False) for size in (8, 100))
    narrow.load_state_dict(wide.state_dict())
    full = torch.nn.MultiheadAttention(8, 2).double()
    with torch.no_grad():
        full.in_proj_weight.copy_(torch.cat([wide.q_proj.weight, wide.k_proj.weight, wide.v_proj.weight]))
        full.in_proj_bias.copy_(torch.cat([wide.q_proj.bias, wide.k_proj.bias, wide.v_proj.bias]))
        full.out_proj.load_state_dict(wide.out_proj.state_dict())
    future = torch.ones(50, 50, dtype=torch.bool).triu(1) if place == "decoder" else None
    expected, _ = full(x, x, x, attn_mask=future)
    torch.testing.assert_close(wide(x, x, x)[0], expected)
    assert (narrow(x, x, x)[0] - expected).abs().max() > 1e-3


@given(
    size=SIZES,
    lengths=st.lists(st.integers(1, 60), min_size=2, max_size=2),
    steps=st.lists(st.sampled_from([1, 1, 2, 5, 30]), min_size=1, max_size=5),
)
def test_steps_of_a_decoder_equal_one_pass(size: int, lengths: list[int], steps: list[int]) -> None:
    check_steps_equal_one_pass(make("decoder", window_size=size), [60, *lengths], steps)


@given(size=SIZES, changed=st.integers(0, 99), length=st.integers(1, 100))
def test_nothing_of_the_future_matters(size: int, changed: int, length: int) -> None:
    """The difference is exactly 0."""
    attention, mask = make("decoder", window_size=size), padding_mask([100, length])
    x = torch.randn(100, 2, 8, dtype=torch.float64, requires_grad=True)
    other = x.detach().clone()
    other[changed:] = 10 * torch.randn_like(other[changed:])
    (out, weights), (other_out, other_weights) = (attention(y, y, y, mask) for y in (x, other))
    assert torch.equal(out[:changed], other_out[:changed])
    assert torch.equal(weights[:, :changed], other_weights[:, :changed])
    if changed:
        (gradient,) = torch.autograd.grad(out[:changed].square().sum(), x)
        assert not gradient[changed:].any()


@torch.no_grad()
def test_the_state_of_a_decoder_stays_small() -> None:
    """Its storage too: a view would keep all of the prefix."""
    attention = make("decoder", window_size=9)
    state: dict = {}
    x = torch.randn(300, 2, 8, dtype=torch.float64)
    for part in x.split([200, *[1] * 100]):
        attention(part, part, part, incremental_state=state, need_weights=False)
        kept = attention.cached(state)
        for name in ("keys", "values"):
            assert kept[name].shape == (2, 2, 8, 4)
            assert kept[name].untyped_storage().nbytes() == 8 * 16 * 8


@torch.no_grad()
def test_hypotheses_change_places_multiply_and_vanish() -> None:
    attention = make("decoder", window_size=5)
    state: dict = {}
    history = torch.zeros(0, 3, 8, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    for position in range(30):
        if position:
            hypotheses = (3, 4, 6, 5, 2)[position % 5]
            order = torch.randint(0, history.size(1), (hypotheses,), generator=generator)
            attention.reorder_incremental_state(state, order)
            history = history[:, order]
        token = torch.randn(1, history.size(1), 8, dtype=torch.float64, generator=generator)
        history = torch.cat([history, token])
        out, _ = attention(token, token, token, None, state, need_weights=False)
        expected, _ = attention(history, history, history, need_weights=False)
        torch.testing.assert_close(out, expected[-1:], rtol=1e-9, atol=1e-9)


def test_queries_of_padding_read_no_others() -> None:
    """Those far from any token see themselves alone, and have gradients that are numbers."""
    attention = make("encoder", window_size=8)
    x = torch.randn(60, 2, 8, dtype=torch.float64, requires_grad=True)
    out, weights = attention(x, x, x, padding_mask([60, 20]))
    alone = attention.out_proj(attention.v_proj.bias)
    torch.testing.assert_close(out[24:, 1], alone.expand(36, 8))
    assert not weights[1, 24:].any()
    for result in (out, weights):
        (gradient,) = torch.autograd.grad(result.square().sum(), x, retain_graph=True)
        assert gradient.isfinite().all()


@every_place
def test_no_tensor_grows_with_the_square_of_the_length(place: str) -> None:
    """Twice the tokens take twice the memory."""
    attention = make(place, window_size=16)
    most = []
    for n in (1024, 2048):
        x = torch.randn(n, 1, 8, dtype=torch.float64, requires_grad=True)
        run = partial(attention, x, x, x, need_weights=False)
        most.append(peak_bytes(lambda run=run: run()[0].sum().backward()))
    assert most[1] <= 2.1 * most[0]


@every_place
def test_refusals(place: str) -> None:
    with pytest.raises(ValueError, match="--linformer-window-size must be at least 1, not 0"):
        make(place, window_size=0)
    with pytest.raises(ValueError, match="WindowAttention is self-attention; pass self_attention=True"):
        make(place, encoder_decoder_attention=True)
    x: Tensor = torch.randn(9, 2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="a key for every query, not 8 for 9"):
        make(place)(x, x[:8], x[:8], need_weights=False)
