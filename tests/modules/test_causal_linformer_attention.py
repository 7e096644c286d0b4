"""Causal attention: against naive references, for leaks, and step by step."""

import pytest
import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq import CausalLinformerAttention
from linformer_fairseq.modules import LinearProjection
from linformer_fairseq.modules.ops.causal import CausalState, causal_attention, default_chunk_size
from linformer_fairseq.modules.ops.naive import causal_linformer_attention
from tests.reference import PROJECTIONS, make_attention, naive_attention

SHARINGS = ("none", "headwise", "key-value")
everything = pytest.mark.parametrize("sharing", SHARINGS)
every_chunk = pytest.mark.parametrize("chunk_size", [None, 1, 7, 64, 600])


def make_causal(sharing: str = "headwise", **options: object) -> CausalLinformerAttention:
    return make_attention("linear", sharing, causal=True, **options)


def inputs(length: int, groups: int = 1, k: int = 5, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    """query, key, value of two sentences and three heads, E and F."""
    tensors = [torch.randn(length, 2, 3, 4, dtype=dtype) for _ in range(3)]
    tensors += [torch.randn(groups, k, length, dtype=dtype) for _ in range(2)]
    return [tensor.requires_grad_() for tensor in tensors]


def naive_causal_attention(
    query: Tensor, key: Tensor, value: Tensor, e: Tensor, f: Tensor, masked: bool = False, window: int = 0
) -> Tensor:
    """The formula for every sentence and head; the queries come scaled."""
    rows = []
    for b in range(query.size(1)):
        heads = []
        for h in range(query.size(2)):
            q, k, v = (x[:, b, h] for x in (query * query.size(3) ** 0.5, key, value))
            heads.append(causal_linformer_attention(q, k, v, e[h % len(e)], f[h % len(f)], window, masked)[0])
        rows.append(torch.stack(heads, 1))
    return torch.stack(rows, 1)


def decode(attention: CausalLinformerAttention, x: Tensor, steps: list[int], **options: object) -> Tensor:
    """The output for `x` in calls of so many tokens."""
    state: dict = {}
    with torch.no_grad():
        parts = [attention(part, part, part, incremental_state=state, **options)[0] for part in x.split(steps)]
    return torch.cat(parts)


def some_split(length: int, data: st.DataObject) -> list[int]:
    steps: list[int] = []
    while sum(steps) < length:
        steps.append(min(data.draw(st.sampled_from([1, 1, 2, 5, 70])), length - sum(steps)))
    return steps


@given(
    length=st.integers(1, 220),
    chunk_size=st.sampled_from([None, 1, 7, 64, 220]),
    groups=st.sampled_from([1, 3]),
    masked=st.booleans(),
    window=st.sampled_from([0, 1, 3, 20, 300]),
)
@example(length=220, chunk_size=None, groups=3, masked=True, window=0)
@example(length=220, chunk_size=7, groups=3, masked=True, window=9)
def test_chunks_equal_naive_reference(
    length: int, chunk_size: int | None, groups: int, masked: bool, window: int
) -> None:
    """Values, and the gradients of query, key, value, E and F."""
    tensors = inputs(length, groups)
    mask = torch.ones(length, 5, dtype=torch.bool).tril(-window) if masked or window else None
    if mask is not None and not masked:
        mask = mask[:, :1].expand(-1, 5)  # all slots, once there is a token before the window
    delayed = [F.pad(matrix, (window, 0))[..., :length] for matrix in tensors[3:]]
    out, _, state = causal_attention(*tensors[:3], *delayed, mask, chunk_size=chunk_size, window=window)
    expected = naive_causal_attention(*tensors, masked, window)
    assert state is None
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    target = torch.randn_like(out)
    options = {"grad_outputs": target, "allow_unused": True, "materialize_grads": True}  # of E and F without a slot
    gradients = zip(*(torch.autograd.grad(y, tensors, **options) for y in (out, expected)), strict=True)
    for gradient, wanted in gradients:
        torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-10)


def test_default_chunks() -> None:
    """One for a text of 192 tokens, chunks of 64 for longer ones."""
    assert [default_chunk_size(length) for length in (1, 192, 193, 5000)] == [192, 192, 64, 64]


def test_gradients_through_a_state() -> None:
    """What came before may be trained through too, in one token and in many."""
    tensors = inputs(9)
    expected = naive_causal_attention(*tensors)
    target = torch.randn_like(expected)
    state, parts, position = CausalState(*(torch.zeros(2, 3, 4, 5, dtype=torch.float64) for _ in range(2))), [], 0
    for step in (1, 5, 1, 2):
        now = slice(position, position + step)
        part, _, state = causal_attention(
            *(x[now] for x in tensors[:3]), *(x[..., now] for x in tensors[3:]), chunk_size=2, state=state
        )
        parts.append(part)
        position += step
    torch.testing.assert_close(torch.cat(parts), expected)
    found = torch.autograd.grad(torch.cat(parts), tensors, target)
    wanted = torch.autograd.grad(expected, tensors, target)
    for gradient, reference in zip(found, wanted, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-10, atol=1e-10)


@everything
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=3), k=st.integers(1, 12), masked=st.booleans())
def test_a_query_meets_the_slots_of_its_prefix(sharing: str, lengths: list[int], k: int, masked: bool) -> None:
    attention = make_causal(sharing, k=k, n=12, mask_empty_slots=masked, chunk_size=5)
    x = torch.randn(max(lengths), len(lengths), 8, dtype=torch.float64)
    mask = torch.arange(len(x)) >= torch.tensor(lengths)[:, None]
    out, weights = attention(x, x, x, key_padding_mask=mask, need_weights=False)
    assert weights is None
    expected = naive_attention(attention, x, x, lengths)[0]
    torch.testing.assert_close(out.masked_fill(mask.t()[:, :, None], 0), expected.masked_fill(mask.t()[:, :, None], 0))


@everything
@every_chunk
def test_the_future_does_not_matter(sharing: str, chunk_size: int | None) -> None:
    """600 tokens: not a multiple of 7 or 64."""
    attention = make_causal(sharing, n=600, dtype=torch.float32, chunk_size=chunk_size, random=False)
    x = torch.randn(600, 1, 8)
    expected = attention(x, x, x)[0]
    for i in (0, 63, 64, 300, 598):
        changed = x.clone()
        changed[i + 1 :] = torch.randn(599 - i, 1, 8) * 3
        out = attention(changed, changed, changed)[0]
        assert (out[: i + 1] - expected[: i + 1]).abs().max() <= 1e-6
        assert not torch.equal(out[i + 1], expected[i + 1])


@everything
@pytest.mark.parametrize("step", [1, 9])
def test_the_future_does_not_matter_at_all_in_steps(sharing: str, step: int) -> None:
    attention = make_causal(sharing, n=100, dtype=torch.float32)
    x = torch.randn(100, 1, 8)
    steps = [step] * (100 // step) + [100 % step] * (100 % step > 0)
    expected = decode(attention, x, steps)
    for i in (0, 3, 50, 98):
        changed = x.clone()
        changed[i + 1 :] = torch.randn(99 - i, 1, 8) * 3
        out = decode(attention, changed, steps)
        assert torch.equal(out[: i + 1], expected[: i + 1])
        assert not torch.equal(out[i + 1], expected[i + 1])


@everything
@every_chunk
def test_the_far_past_matters(sharing: str, chunk_size: int | None) -> None:
    attention = make_causal(sharing, n=600, chunk_size=chunk_size)
    x = torch.randn(600, 1, 8, dtype=torch.float64)
    changed = x.clone()
    changed[0] += 1
    both = torch.cat([x, changed], 1)
    for out in (attention(both, both, both)[0], decode(attention, both, [1] * 600)):
        assert (out[500, 0] - out[500, 1]).abs().max() > 1e-6


@everything
@settings(max_examples=3)
@given(data=st.data())
def test_steps_equal_chunks_over_2000_positions(sharing: str, data: st.DataObject) -> None:
    options = {"k": 16, "mask_empty_slots": data.draw(st.booleans()), "window": data.draw(st.sampled_from([0, 1, 30]))}
    attention = make_causal(sharing, n=2000, random=False, dtype=torch.float32, **options)
    x = torch.randn(2000, 2, 8)
    expected = attention(x, x, x)[0]
    torch.testing.assert_close(decode(attention, x, some_split(2000, data)), expected, rtol=0, atol=1e-5)


@everything
@pytest.mark.parametrize("bias", [True, False])
def test_starts_as_full_causal_attention_while_k_covers_the_prefix(sharing: str, bias: bool) -> None:
    options = {"k": 16, "n": 64, "random": False, "dtype": torch.float32, "init": "identity", "mask_empty_slots": True}
    attention = make_causal(sharing, bias=bias, **options)
    if bias:
        torch.nn.init.normal_(attention.k_proj.bias)
        torch.nn.init.normal_(attention.v_proj.bias)
    full = MultiheadAttention(8, 2, self_attention=True, bias=bias).eval()
    full.load_state_dict({name: w for name, w in attention.state_dict().items() if "projection" not in name})
    x = torch.randn(40, 2, 8)
    future = torch.full((40, 40), -torch.inf).triu(1)
    # fairseq's fast path fails without biases; it is not taken where there is an incremental state
    state: dict = {}
    expected = torch.cat([full(part, part, part, incremental_state=state)[0] for part in x.split(1)])
    ways = (
        attention(x, x, x)[0],
        attention(x, x, x, attn_mask=future)[0],
        decode(attention, x, [1] * 40),
        decode(attention, x, [3, 1, 30, 6]),
    )
    for out in ways:
        torch.testing.assert_close(out[:16], expected[:16], rtol=0, atol=1e-5)
        assert (out[17:] - expected[17:]).abs().max() > 1e-3


@everything
@pytest.mark.parametrize("masked", [True, False])
def test_is_full_causal_attention_within_the_window(sharing: str, masked: bool) -> None:
    attention = make_causal(sharing, k=4, n=64, dtype=torch.float32, window=16, mask_empty_slots=masked)
    full = MultiheadAttention(8, 2, self_attention=True).eval()
    full.load_state_dict({name: w for name, w in attention.state_dict().items() if "projection" not in name})
    x = torch.randn(40, 2, 8)
    future = torch.full((40, 40), -torch.inf).triu(1)
    expected, expected_weights = full(x, x, x, attn_mask=future)
    for steps in ([40], [1] * 40, [3, 1, 30, 6]):
        out = decode(attention, x, steps)
        torch.testing.assert_close(out[:16], expected[:16], rtol=1e-4, atol=1e-5)
        assert (out[17:] - expected[17:]).abs().max() > 1e-3
    out, weights = attention(x, x, x)
    torch.testing.assert_close(out[:16], expected[:16], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(weights[:, :16], expected_weights[:, :16], rtol=1e-4, atol=1e-5)


def test_tokens_before_the_window_come_through_the_slots_alone() -> None:
    """With F = 0 they do not, with any other F they do."""
    attention = make_causal(k=4, n=64, window=5)
    x = torch.randn(12, 1, 8, dtype=torch.float64)
    other = x.clone()
    other[:4] = torch.randn(4, 1, 8, dtype=torch.float64)
    with torch.no_grad():
        assert (attention(x, x, x)[0] - attention(other, other, other)[0])[9:].abs().max() > 1e-3
        attention.key_projection.weight.zero_()
        attention.value_projection.weight.zero_()
        torch.testing.assert_close(attention(x, x, x)[0][9:], attention(other, other, other)[0][9:])


@everything
@pytest.mark.parametrize("poison", [1e9, float("inf"), float("nan")])
def test_padding_never_reaches_an_output(sharing: str, poison: float) -> None:
    attention = make_causal(sharing, chunk_size=8)
    lengths = torch.tensor([20, 7, 1])
    mask = torch.arange(20) >= lengths[:, None]
    x = torch.randn(20, 3, 8, dtype=torch.float64)
    poisoned = x.masked_fill(mask.t()[:, :, None], poison)
    clean, clean_weights = attention(x, x, x, key_padding_mask=mask)
    dirty, dirty_weights = attention(x, poisoned, poisoned, key_padding_mask=mask)
    assert torch.equal(dirty, clean)
    assert torch.equal(dirty_weights, clean_weights)


@everything
@pytest.mark.parametrize("window", [0, 1, 4, 12])
def test_weights_over_tokens(sharing: str, window: int) -> None:
    """They reproduce the output, lie in the past, and are the same step by step."""
    attention = make_causal(sharing, k=3, n=10, window=window)
    x = torch.randn(10, 2, 8, dtype=torch.float64)
    expected, weights = attention(x, x, x, need_head_weights=True)
    assert weights.shape == (2, 2, 10, 10)
    assert (weights.triu(1) == 0).all()
    values = torch.nn.functional.linear(x, attention.v_proj.weight).view(10, 2, 2, 4)
    out = torch.einsum("hbtn,nbhd->tbhd", weights, values).reshape(10, 2, 8) + attention.v_proj.bias
    torch.testing.assert_close(attention.out_proj(out), expected)
    for steps in ([1] * 10, [3, 1, 6]):
        state: dict = {}
        end = 0
        for part in x.split(steps):
            _, rows = attention(part, part, part, incremental_state=state, need_weights=True)
            start, end = end, end + len(part)
            torch.testing.assert_close(rows, weights.mean(0)[:, start:end, :end])


@everything
@pytest.mark.parametrize("window", [0, 4])
def test_padding_in_steps(sharing: str, window: int) -> None:
    """Sentences that end early leave the others, and their own past, as they are."""
    attention = make_causal(sharing, n=20, window=window)
    lengths = torch.tensor([20, 7, 12])
    mask = torch.arange(20) >= lengths[:, None]
    x = torch.randn(20, 3, 8, dtype=torch.float64)
    whole = attention(x, x, x, key_padding_mask=mask)[0]
    poisoned = x.masked_fill(mask.t()[:, :, None], 1e9)
    for steps in ([1] * 20, [5, 4, 1, 10]):
        state: dict = {}
        parts = zip(x.split(steps), poisoned.split(steps), mask.split(steps, 1), strict=True)
        out = torch.cat([attention(q, k, k, m, state)[0] for q, k, m in parts])
        torch.testing.assert_close(out, whole)


@everything
@pytest.mark.parametrize("window", [0, 7])
def test_state_is_reordered_and_does_not_grow(sharing: str, window: int) -> None:
    attention = make_causal(sharing, n=200, window=window)
    x = torch.randn(200, 3, 8, dtype=torch.float64)
    expected = attention(x, x, x)[0]
    state: dict = {}
    decoded, sizes = [], set()
    history = torch.arange(3)  # the sentence that each row follows
    for i in range(200):
        part = x[i : i + 1, history]
        decoded.append(attention(part, part, part, incremental_state=state)[0][0])
        torch.testing.assert_close(decoded[-1], expected[i, history])
        order = torch.randperm(3)
        attention.reorder_incremental_state(state, order)
        history = history[order]
        sizes.add(sum(tensor.numel() for entry in state.values() for tensor in entry.values()))
    # two sums of k · C numbers a sentence, keys and values of the window, the position, and the order
    assert sizes == {2 * 3 * 8 * (4 + window) + 1 + 3}


@pytest.mark.parametrize("window", [0, 4])
def test_rows_may_multiply_and_vanish(window: int) -> None:
    """As hypotheses do: one sentence becomes a beam, finished ones leave."""
    attention = make_causal(n=64, window=window)
    x = torch.randn(20, 2, 8, dtype=torch.float64)
    expected = attention(x, x, x)[0]
    state: dict = {}
    attention(x[:9], x[:9], x[:9], incremental_state=state)
    attention.reorder_incremental_state(state, torch.tensor([1, 0]))
    attention.reorder_incremental_state(state, torch.tensor([1, 1, 1, 0, 0, 0]))
    wide = x[9:15].repeat_interleave(3, 1)
    out = attention(wide, wide, wide, incremental_state=state)[0]
    torch.testing.assert_close(out, expected[9:15].repeat_interleave(3, 1))
    attention.reorder_incremental_state(state, torch.tensor([4]))
    last = x[15:, 1:]
    torch.testing.assert_close(attention(last, last, last, incremental_state=state)[0], expected[15:, 1:])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@everything
def test_half_precision_stays_finite(dtype: torch.dtype, sharing: str) -> None:
    options = {"k": 64, "n": 4096, "embed_dim": 64, "num_heads": 4, "random": False}
    attention = make_causal(sharing, dtype=dtype, **options)
    x = torch.randn(4096, 1, 64).to(dtype).requires_grad_()
    out, _ = attention(x, x, x, need_weights=False)
    out.float().sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in attention.parameters())
    assert decode(attention, x.detach(), [4000] + [1] * 96).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("step", [1, 100])
def test_state_keeps_its_precision(dtype: torch.dtype, step: int) -> None:
    """The sums over 4,096 tokens, against those of float64 with the same rounded weights."""
    attention = make_causal(n=4096, random=False, dtype=dtype)
    exact = make_causal(n=4096, dtype=torch.float64)
    exact.load_state_dict(attention.state_dict())
    x = torch.randn(4096, 2, 8).to(dtype)
    states: list[dict] = [{}, {}]
    with torch.no_grad():
        for part in x.split(step):
            attention(part, part, part, incremental_state=states[0])
        exact(x.double(), x.double(), x.double(), incremental_state=states[1])
    found, wanted = (next(iter(state.values())) for state in states)
    for name in ("key_sums", "value_sums"):
        assert found[name].dtype == torch.float32
        assert (found[name] - wanted[name]).norm() / wanted[name].norm() < 1e-2


@pytest.mark.parametrize("window", [0, 4])
def test_older_states_stay_as_they_are(window: int) -> None:
    """A state that someone keeps is not overwritten by the tokens after it."""
    attention = make_causal(n=64, window=window)
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


def test_sums_of_chunks_keep_their_precision() -> None:
    """The chunked form in bfloat16 against float64: the sums over chunks are added up in float32."""
    attention = make_causal(k=64, n=4096, embed_dim=64, num_heads=4, random=False)
    x = torch.randn(4096, 1, 64).bfloat16()
    rounded = make_causal(k=64, n=4096, embed_dim=64, num_heads=4, random=False, dtype=torch.bfloat16)
    rounded.load_state_dict(attention.state_dict())
    exact = attention(x.double(), x.double(), x.double(), need_weights=False)[0]
    out = rounded(x, x, x, need_weights=False)[0].double()
    assert (out - exact).norm() / exact.norm() < 2e-2


@pytest.mark.parametrize("need_weights", [False, True])
def test_dropout_falls_on_the_probabilities(need_weights: bool) -> None:
    attention = make_causal(dropout=0.5)
    x = torch.randn(9, 1, 8, dtype=torch.float64).expand(9, 20000, 8)
    expected = attention(x[:, :1], x[:, :1], x[:, :1])[0]
    out = attention.train()(x, x, x, need_weights=need_weights)[0]
    assert not torch.equal(out[:, 0], out[:, 1])
    torch.testing.assert_close(out.mean(1, keepdim=True), expected, rtol=0, atol=0.1 * expected.std().item())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype: torch.dtype) -> None:
    """Mixed precision, as `--amp` has it: half in the products, gradients in float32."""
    attention = make_causal(k=8, n=300, dtype=torch.float32, random=False)
    x = torch.randn(300, 2, 8)
    outputs, gradients = [], []
    for enabled in (False, True):
        with torch.autocast("cpu", dtype, enabled=enabled):
            outputs.append(attention(x, x, x, need_weights=False)[0])
        parameters = list(attention.parameters())
        gradients.append(torch.autograd.grad(outputs[-1].float().square().sum(), parameters))
    assert outputs[1].dtype == dtype
    assert (outputs[1] - outputs[0]).norm() < 0.05 * outputs[0].norm()
    for exact, found in zip(*gradients, strict=True):
        assert found.dtype == torch.float32
        assert (found - exact).norm() <= 0.1 * exact.norm()
    with torch.autocast("cpu", dtype):
        for steps in ([1] * 300, [100, 1, 199]):
            assert (decode(attention, x, steps) - outputs[0]).norm() < 0.05 * outputs[0].norm()


def test_second_derivatives_are_refused() -> None:
    tensors = inputs(9)
    out = causal_attention(*tensors)[0].square().sum()
    gradient = torch.autograd.grad(out, tensors, create_graph=True)[2]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("shape", [(0, 2, 8), (5, 0, 8), (1, 0, 8)])
def test_empty_inputs(shape: tuple[int, ...]) -> None:
    attention = make_causal()
    x = torch.zeros(shape, dtype=torch.float64)
    for state in (None, {}):
        assert attention(x, x, x, incremental_state=state, need_weights=False)[0].shape == shape


def test_every_parameter_has_a_gradient() -> None:
    """As torch's DDP wants it; that of the key bias, which drops out of the softmax, is zero."""
    attention = make_causal().train()
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    attention(x, x, x)[0].sum().backward()
    assert all(parameter.grad is not None for parameter in attention.parameters())
    assert (attention.k_proj.bias.grad == 0).all()


def test_targets_beyond_the_longest_length() -> None:
    attention = make_causal(n=16)
    x = torch.randn(20, 2, 8, dtype=torch.float64)
    mask = torch.arange(20) >= torch.tensor([16, 5])[:, None]
    out = attention(x, x, x, key_padding_mask=mask)[0]
    torch.testing.assert_close(out[:16], attention(x[:16], x[:16], x[:16], key_padding_mask=mask[:, :16])[0])
    sentence = "a target of 17 tokens is longer than the 16 positions .* a larger --max-target-positions"
    with pytest.raises(ValueError, match=sentence):
        attention(x[:17], x[:17], x[:17])
    with pytest.raises(ValueError, match=sentence):
        decode(attention, x[:17], [1] * 17)
    with pytest.raises(ValueError, match="a target of 18 tokens is longer than the 16 positions"):
        attention(x, x, x, key_padding_mask=torch.arange(20) >= torch.tensor([18, 5])[:, None])


@pytest.mark.parametrize("kind", [kind for kind in PROJECTIONS if kind != "linear"])
def test_refuses_projections_that_look_at_the_whole_length(kind: str) -> None:
    projection = PROJECTIONS[kind](4, 32)
    with pytest.raises(ValueError, match=f"needs a linear projection; {type(projection).__name__}"):
        CausalLinformerAttention(8, 2, key_projection=projection, self_attention=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"self_attention": False, "encoder_decoder_attention": True}, "causal Linformer attention is self-attention"),
        ({"q_noise": 0.1}, "quantisation noise"),
        ({"chunk_size": 0}, "chunk_size must be at least 1, not 0"),
    ],
)
def test_refuses_to_be_built_with(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        make_causal(**options)


@pytest.mark.parametrize(
    "mask",
    [
        torch.zeros(9, 9),
        torch.ones(9, 9, dtype=torch.bool).tril(),
        torch.full((9, 9), -torch.inf).triu(2),
        torch.full((9, 9), -torch.inf).triu(1) + 1,
        torch.full((4, 4), -torch.inf).triu(1),
    ],
)
def test_refuses_other_masks_than_the_future(mask: Tensor) -> None:
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="no other attn_mask than the future mask"):
        make_causal()(x, x, x, attn_mask=mask)


def test_refuses_static_keys() -> None:
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="does not support static_kv"):
        make_causal()(x, x, x, incremental_state={}, static_kv=True)


def test_refuses_keys_of_another_length() -> None:
    x = torch.randn(9, 2, 8, dtype=torch.float64)
    with pytest.raises(ValueError, match="a key for every query, not 8 for 9"):
        make_causal()(x, x[:8], x[:8])


def test_keys_and_values_may_differ() -> None:
    attention = make_causal("headwise")
    q, k, v = torch.randn(3, 9, 2, 8, dtype=torch.float64).unbind()
    heads = (2, 4)
    expected = naive_causal_attention(
        attention.q_proj(q).unflatten(2, heads) / 2,
        torch.nn.functional.linear(k, attention.k_proj.weight).unflatten(2, heads),
        torch.nn.functional.linear(v, attention.v_proj.weight).unflatten(2, heads),
        attention.key_projection.weight[None, :, :9],
        attention.value_projection.weight[None, :, :9],
    )
    out = attention(q, k, v, need_weights=False)[0]
    torch.testing.assert_close(out, attention.out_proj(expected.flatten(2) + attention.v_proj.bias))


@given(start=st.integers(0, 12), length=st.integers(1, 12), heads=st.sampled_from([None, 2]))
def test_columns(start: int, length: int, heads: int | None) -> None:
    projection = LinearProjection(3, 10, heads)
    columns = projection.columns(start, length)
    padded = torch.nn.functional.pad(projection.weight.view(-1, 3, 10), (0, 20))
    assert torch.equal(columns, padded[..., start : start + length])
