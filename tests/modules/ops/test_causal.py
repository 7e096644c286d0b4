"""The chunked and the recurrent form of causal attention equal its formula."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules.ops.causal import CausalState, causal_attention, default_chunk_size
from linformer_fairseq.modules.ops.naive import causal_linformer_attention
from tests.reference import assert_same_gradients


def inputs(length: int, groups: int = 1, k: int = 5) -> list[Tensor]:
    """Returns query, key and value of two sentences and three heads, and E and F."""
    shapes = [(length, 2, 3, 4)] * 3 + [(groups, k, length)] * 2
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def naive(
    query: Tensor, key: Tensor, value: Tensor, e: Tensor, f: Tensor, window: int = 0, masked: bool = False
) -> Tensor:
    """Returns the formula's output for every sentence and head; the queries are scaled already."""
    query = query * query.size(3) ** 0.5

    def head(b: int, h: int) -> Tensor:
        qkv = (x[:, b, h] for x in (query, key, value))
        return causal_linformer_attention(*qkv, e[h % len(e)], f[h % len(f)], window, masked)[0]

    heads = range(query.size(2))
    return torch.stack([torch.stack([head(b, h) for h in heads], 1) for b in range(query.size(1))], 1)


def in_window_form(tensors: list[Tensor], window: int, masked: bool) -> tuple[list[Tensor], Tensor | None]:
    """Returns the tensors as `causal_attention` takes them, E and F w places later, and the slots of each query."""
    length, slots = len(tensors[0]), tensors[3].size(1)
    delayed = [F.pad(matrix, (window, 0))[..., :length] for matrix in tensors[3:]]
    if not (masked or window):
        return [*tensors[:3], *delayed], None
    mask = torch.ones(length, slots, dtype=torch.bool).tril(-window)
    # unmasked all slots take part once there is a token before the window
    return [*tensors[:3], *delayed], mask if masked else mask[:, :1].expand(-1, slots)


@given(
    length=st.integers(1, 70),
    chunk_size=st.sampled_from([None, 1, 7, 64]),
    groups=st.sampled_from([1, 3]),
    masked=st.booleans(),
    window=st.sampled_from([0, 1, 3, 20, 100]),
)
@example(length=200, chunk_size=None, groups=3, masked=True, window=9)  # in chunks by default
@example(length=40, chunk_size=7, groups=3, masked=False, window=0)
@example(length=40, chunk_size=7, groups=1, masked=True, window=9)
def test_chunks_equal_the_naive_reference(
    length: int, chunk_size: int | None, groups: int, masked: bool, window: int
) -> None:
    """The output and the gradients of query, key, value, E and F are equal."""
    tensors = inputs(length, groups)
    arguments, mask = in_window_form(tensors, window, masked)
    out, _, state = causal_attention(*arguments, mask, chunk_size=chunk_size, window=window)
    expected = naive(*tensors, window, masked)
    assert state is None
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    assert_same_gradients(out, expected, tensors, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("window", [0, 3])
def test_gradients_through_a_state(window: int) -> None:
    """Gradients flow through the state to earlier tokens, from steps of one token and of several."""
    tensors = inputs(9)
    arguments, mask = in_window_form(tensors, window, masked=False)
    shapes = [(2, 3, 4, 5)] * 2 + [(2, 3, window, 4)] * 2
    state = CausalState(*(torch.zeros(shape, dtype=torch.float64) for shape in shapes))
    parts, position = [], 0
    for step in (1, 5, 1, 2):
        now = slice(position, position + step)
        part, _, state = causal_attention(
            *(x[now] for x in arguments[:3]),
            *(x[..., now] for x in arguments[3:]),
            None if mask is None else mask[now],
            chunk_size=2,
            state=state,
            window=window,
            position=position,
        )
        parts.append(part)
        position += step
    expected = naive(*tensors, window)
    torch.testing.assert_close(torch.cat(parts), expected)
    assert_same_gradients(torch.cat(parts), expected, tensors, rtol=1e-10, atol=1e-10)


def test_default_chunks() -> None:
    """A text of up to 192 tokens is one chunk, and a longer one has chunks of 64."""
    assert [default_chunk_size(length) for length in (1, 192, 193, 5000)] == [192, 192, 64, 64]


def test_second_derivatives_are_refused() -> None:
    tensors = inputs(9)
    out = causal_attention(*tensors)[0].square().sum()
    gradient = torch.autograd.grad(out, tensors, create_graph=True)[2]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("window", [0, 3])
def test_scores_beyond_half_precision(dtype: torch.dtype, window: int) -> None:
    """Those over tokens are sums on the way to those over slots; with several chunks they come in sums as well."""
    tensors = [x.detach().to(dtype) for x in inputs(24)]
    tensors[:2] = [300 * x for x in tensors[:2]]
    half, mask = in_window_form(tensors, window, masked=False)
    exact, _ = in_window_form([x.double() for x in tensors], window, masked=False)
    q, k = exact[0][:, 0, 0], exact[1][:, 0, 0]
    assert (q @ k.t()).abs().max() > 65504
    for chunk_size in (7, 24):
        options = {"chunk_size": chunk_size, "window": window, "need_probabilities": True}
        out, probabilities, _ = causal_attention(*half, mask, **options)
        expected, expected_probabilities, _ = causal_attention(*exact, mask, **options)
        assert out.dtype is dtype
        assert (out - expected).norm() < 0.01 * expected.norm()
        assert (probabilities - expected_probabilities).norm() < 0.01 * expected_probabilities.norm()
    leaves = [x.requires_grad_() for x in half]
    causal_attention(*leaves, mask, chunk_size=7, window=window)[0].float().sum().backward()
    assert all(x.grad.isfinite().all() for x in leaves)
