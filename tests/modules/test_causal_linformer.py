"""Causal attention leaks nothing of the future, equals itself step by step, and keeps its sums precise."""

import pytest
import torch
from fairseq.modules import MultiheadAttention
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq import CausalLinformerAttention
from linformer_fairseq.modules.causal_linformer import columns
from linformer_fairseq.modules.linformer_attention import SHARINGS
from tests.reference import PROJECTIONS, make_attention
from tests.steps import check_steps_equal_one_pass, decode, steps_of
from tests.variants import variants


def make_causal(sharing: str = "headwise", **options: object) -> CausalLinformerAttention:
    return make_attention("linear", sharing, causal=True, **options)


@given(
    sharing=st.sampled_from(SHARINGS),
    window=st.sampled_from([0, 1, 4, 30]),
    masked=st.booleans(),
    lengths=st.lists(st.integers(1, 20), min_size=2, max_size=2),
    sizes=st.lists(st.sampled_from([1, 1, 2, 5, 9]), min_size=1, max_size=5),
)
def test_steps_equal_one_pass(sharing: str, window: int, masked: bool, lengths: list[int], sizes: list[int]) -> None:
    options = {"k": 3, "window": window, "mask_empty_slots": masked}
    check_steps_equal_one_pass(make_causal(sharing, n=20, **options), [20, *lengths], sizes)


@pytest.mark.parametrize(
    ("sharing", "window", "masked"),
    variants([("layerwise", 0, False), ("key-value", 1, True)], default=[("headwise", 30, True)]),
)
def test_steps_equal_one_pass_over_2000_positions(sharing: str, window: int, masked: bool) -> None:
    options = {"k": 16, "mask_empty_slots": masked, "window": window}
    attention = make_causal(sharing, n=2000, random=False, dtype=torch.float32, **options)
    x = torch.randn(2000, 2, 8)
    expected = attention(x, x, x)[0]
    out = decode(attention, x, steps_of(2000, [1, 1, 1, 2, 5, 1, 70]))
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("window", [0, 40])
def test_all_of_the_past_matters_and_nothing_of_the_future(window: int) -> None:
    """The 600 tokens are no multiple of a chunk."""
    attention = make_causal(n=600, window=window)
    x = torch.randn(600, 1, 8, dtype=torch.float64)
    lasts = (0, 63, 64, 300, 598)
    changed = x.repeat(1, 1 + len(lasts), 1)  # the first in its first token, the others in all after these
    changed[0, 0] += 1
    for sentence, last in enumerate(lasts, 1):
        changed[last + 1 :, sentence] = 3 * torch.randn(599 - last, 8, dtype=torch.float64)
    for steps in ([600], steps_of(600, [1]), steps_of(600, [1, 9, 70])):
        expected, out = (decode(attention, y, steps) for y in (x, changed))
        whole = attention(changed, changed, changed)[0]
        for found in (out, whole):
            assert ((found[:, 0] - expected[:, 0]).abs().amax(1) > 1e-6).all()
            for sentence, last in enumerate(lasts, 1):
                torch.testing.assert_close(found[: last + 1, sentence], expected[: last + 1, 0], rtol=0, atol=1e-10)
                assert (found[last + 1, sentence] - expected[last + 1, 0]).abs().max() > 1e-6


@pytest.mark.parametrize(
    "options",
    [
        {"k": 16, "mask_empty_slots": True},  # a slot for every token
        {"k": 4, "window": 16},  # or a window over all of them
    ],
)
@pytest.mark.parametrize("bias", [True, False])
def test_is_fairseqs_attention_for_16_tokens(options: dict, bias: bool) -> None:
    x = torch.randn(40, 2, 8, dtype=torch.float64)
    future = torch.full((40, 40), -torch.inf).triu(1)
    for sharing in SHARINGS:
        attention = make_causal(sharing, n=64, random=False, bias=bias, **options)
        with torch.no_grad():
            for projection in (attention.key_projection, attention.value_projection):
                projection.weight[:, :16] = torch.eye(len(projection.weight), 16)
        if bias:
            torch.nn.init.normal_(attention.k_proj.bias)
            torch.nn.init.normal_(attention.v_proj.bias)
        full = MultiheadAttention(8, 2, self_attention=True, bias=bias).double().eval()
        full.load_state_dict({name: w for name, w in attention.state_dict().items() if "projection" not in name})
        # fairseq's fast path fails without biases; it is not taken where there is an incremental state
        state: dict = {}
        expected = torch.cat([full(part, part, part, incremental_state=state)[0] for part in x.split(1)])
        masked = attention(x, x, x, attn_mask=future)[0], attention(x, x, x, attn_mask=future.isneginf())[0]
        for out in (attention(x, x, x)[0], *masked, decode(attention, x, [1] * 40), decode(attention, x, [3, 1, 36])):
            torch.testing.assert_close(out[:16], expected[:16], rtol=0, atol=1e-5)
            assert (out[17:] - expected[17:]).abs().max() > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("window", [0, 7])
def test_rows_change_places_multiply_and_vanish(window: int) -> None:
    """A search may reorder its hypotheses twice between two tokens. The state does not grow."""
    attention = make_causal(n=60, window=window)
    x = torch.randn(60, 3, 8, dtype=torch.float64)
    expected = attention(x, x, x)[0]
    state: dict = {}
    rows = torch.arange(3)  # the sentence that each row follows
    orders = ([[2, 0, 1]], [[1, 1, 0, 2]], [[3, 0, 2, 2], [0, 1, 3]])
    for i in range(60):
        part = x[i : i + 1, rows]
        out = attention(part, part, part, incremental_state=state)[0]
        torch.testing.assert_close(out[0], expected[i, rows])
        kept = len(rows)
        for order in map(torch.tensor, orders[i % 3]):
            attention.reorder_incremental_state(state, order)
            rows = rows[order]
        # two sums of k · C numbers a sentence, and keys and values of the window
        size = sum(tensor.numel() for tensor in attention.cached(state)["state"][1:])
        assert size == 2 * kept * 8 * (4 + min(window, i + 1))


@pytest.mark.parametrize("window", [0, 4])
def test_older_states_stay_as_they_are(window: int) -> None:
    """Later tokens do not overwrite a state that a caller keeps."""
    attention = make_causal(window=window)
    x = torch.randn(20, 2, 8, dtype=torch.float64)
    expected = attention(x, x, x)[0]
    state: dict = {}
    prefix = attention(x[:9], x[:9], x[:9], incremental_state=state)[0]
    attention.reorder_incremental_state(state, torch.tensor([1, 0]))
    branch = {name: dict(buffer) for name, buffer in state.items()}
    with torch.no_grad():
        for way in (state, branch):
            out = torch.cat([attention(p, p, p, incremental_state=way)[0] for p in x[9:, [1, 0]].split(1)])
            torch.testing.assert_close(out, expected[9:, [1, 0]])
    prefix.sum().backward()


@torch.no_grad()
def test_sums_keep_their_precision() -> None:
    """In bfloat16 the sums of the state, over single tokens and over chunks, and those of a single pass are close to
    float64's."""
    rounded, exact = (make_causal(k=16, n=2048, random=False, dtype=t) for t in (torch.bfloat16, torch.float64))
    exact.load_state_dict(rounded.state_dict())
    x = torch.randn(2048, 2, 8).bfloat16()
    states: list[dict] = [{}, {}]
    for part in x.split(steps_of(2048, [1] * 1000 + [48, 1000])):
        rounded(part, part, part, incremental_state=states[0])
    expected = exact(x.double(), x.double(), x.double(), incremental_state=states[1])[0]
    found, wanted = (next(iter(state.values()))["state"] for state in states)
    for sums, wanted_sums in zip(found[1:3], wanted[1:3], strict=True):
        assert sums.dtype == torch.float32
        assert (sums - wanted_sums).norm() < 1e-2 * wanted_sums.norm()
    assert (rounded(x, x, x)[0] - expected).norm() < 2e-2 * expected.norm()


def test_gradients_are_the_same_within_autocast_and_after_it() -> None:
    """Of a text of several chunks."""
    attention = make_attention("linear", causal=True, n=400, k=8, dtype=torch.float32)
    x = torch.randn(300, 2, 8, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(x, x, x, need_weights=False)[0].float().square().sum()
        (within,) = torch.autograd.grad(out, x, retain_graph=True)
    (after,) = torch.autograd.grad(out, x)
    assert torch.equal(within, after)


def test_the_bias_of_the_keys_has_a_gradient_of_zero() -> None:
    attention = make_causal().train()
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    attention(x, x, x)[0].sum().backward()
    assert (attention.k_proj.bias.grad == 0).all()


def test_a_target_may_grow_too_long_in_steps() -> None:
    x = torch.randn(17, 2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="a target of 17 tokens is longer than the 16 positions"):
        decode(make_causal(n=16), x, [1] * 17)


def test_refuses_to_be_built_with() -> None:
    for kind, options, sentence in (
        ("linear", {"self_attention": False, "encoder_decoder_attention": True}, "Attention is self-attention; pass"),
        ("linear", {"window": -1}, "the window must be at least 0 tokens, not -1"),
        *((kind, {}, "needs a linear projection; .* depends on") for kind in PROJECTIONS if kind != "linear"),
    ):
        settings = {"self_attention": True, "key_projection": PROJECTIONS[kind](4, 8), **options}
        with pytest.raises(ValueError, match=sentence):
            CausalLinformerAttention(8, 2, **settings)


def test_refuses_keys_of_another_length_and_other_masks_than_the_future() -> None:
    attention, x = make_causal(), torch.randn(9, 2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="a key for every query, not 8 for 9"):
        attention(x, x[:8], x[:8])
    hidden = torch.full((9, 9), -torch.inf)
    for mask in (hidden.isneginf().tril(), hidden.triu(2), hidden.triu(1) + 1, hidden[:4, :4].triu(1)):
        with pytest.raises(ValueError, match="no attn_mask but the future mask"):
            attention(x, x, x, attn_mask=mask)


@given(start=st.integers(-12, 12), length=st.integers(1, 12))
def test_columns(start: int, length: int) -> None:
    matrix = torch.randn(3, 10)
    padded = torch.nn.functional.pad(matrix, (12, 20))
    assert torch.equal(columns(matrix, start, length), padded[:, start + 12 : start + 12 + length])
