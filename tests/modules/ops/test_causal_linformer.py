"""The chunked and the recurrent form of causal Linformer attention equal its formula."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules.ops.causal_linformer import CausalState, Tokens, causal_attention
from tests.naive import causal_linformer_attention
from tests.reference import assert_same_gradients


def inputs(length: int, k: int = 5) -> list[Tensor]:
    """Returns query, key and value of two sentences and three heads, and E and F."""
    shapes = [(2, 3, length, 4)] * 3 + [(k, length)] * 2
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def naive(query: Tensor, *others: Tensor, window: int = 0, masked: bool = False) -> Tensor:
    """Returns the formula's output for every sentence and head; the queries are scaled already."""
    (key, value, e, f), query = others, query * query.size(3) ** 0.5
    heads = zip(*(x.flatten(0, 1) for x in (query, key, value)), strict=True)
    outs = [causal_linformer_attention(*head, e, f, window, masked)[0] for head in heads]
    return torch.stack(outs).unflatten(0, query.shape[:2])


def delayed(tensors: list[Tensor], window: int = 0) -> Tokens:
    """Returns the tensors with E and F w places later."""
    return Tokens(*tensors[:3], *(F.pad(matrix, (window, 0))[:, : matrix.size(1)] for matrix in tensors[3:]))


@given(
    length=st.integers(1, 70),
    chunk=st.sampled_from([None, 1, 7, 64]),
    masked=st.booleans(),
    window=st.sampled_from([0, 1, 3, 20, 100]),
)
@example(length=200, chunk=None, masked=True, window=9)  # in chunks by default
@example(length=40, chunk=7, masked=False, window=0)
@example(length=40, chunk=7, masked=True, window=9)
def test_chunks_equal_the_naive_reference(length: int, chunk: int | None, masked: bool, window: int) -> None:
    """The output and the gradients of query, key, value, E and F are equal."""
    tensors = inputs(length)
    out, _, state = causal_attention(delayed(tensors, window), window, masked, chunk=chunk)
    expected = naive(*tensors, window=window, masked=masked)
    assert state is None
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    assert_same_gradients(out, expected, tensors, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("window", [0, 3])
def test_gradients_through_a_state(window: int) -> None:
    """Gradients flow through the state to earlier tokens, from steps of one token and of several."""
    tensors = inputs(9)
    state = CausalState.empty(tensors[0], 5)
    parts = []
    for now in (slice(1), slice(1, 6), slice(6, 7), slice(7, 9)):
        part = [x[:, :, now] if x.dim() == 4 else x[:, now] for x in delayed(tensors, window)]
        out, _, state = causal_attention(Tokens(*part), window, chunk=2, state=state)
        parts.append(out)
    expected = naive(*tensors, window=window)
    torch.testing.assert_close(torch.cat(parts, 2), expected)
    assert_same_gradients(torch.cat(parts, 2), expected, tensors, rtol=1e-10, atol=1e-10)


def test_second_derivatives_are_refused() -> None:
    tensors = inputs(9)
    out = causal_attention(delayed(tensors))[0].square().sum()
    gradient = torch.autograd.grad(out, tensors, create_graph=True)[2]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("window", [0, 3])
def test_scores_beyond_half_precision(dtype: torch.dtype, window: int) -> None:
    """Those over tokens are sums on the way to those over slots; with several chunks they come in sums as well."""
    tensors = [x.detach().to(dtype) for x in inputs(24)]
    tensors[:2] = [300 * x for x in tensors[:2]]
    half, exact = delayed(tensors, window), delayed([x.double() for x in tensors], window)
    assert (exact[0][0, 0] @ exact[1][0, 0].t()).abs().max() > 65504
    for chunk in (7, 24):
        options = {"chunk": chunk, "window": window, "need_probabilities": True}
        out, probabilities, _ = causal_attention(half, **options)
        expected, expected_probabilities, _ = causal_attention(exact, **options)
        assert out.dtype is dtype
        assert (out - expected).norm() < 0.01 * expected.norm()
        for own, wanted in zip(probabilities, expected_probabilities, strict=True):
            assert own is None or (own - wanted).norm() < 0.01 * wanted.norm()
    leaves = [x.requires_grad_() for x in half]
    causal_attention(Tokens(*leaves), window=window, chunk=7)[0].float().sum().backward()
    assert all(x.grad.isfinite().all() for x in leaves)
