"""Weights of tokens are what slots and padding leave to them."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules.ops.padding import padding_of
from linformer_fairseq.modules.ops.token_weights import weights_of_growing_slots, weights_of_slots, without_padding
from tests.naive import _token_shares
from tests.reference import padding_mask


def matrix_of_slots(*shape: int) -> Tensor:
    """Returns F with many zeros."""
    return torch.randn(shape).double() * torch.randint(0, 2, shape)


@given(st.integers(1, 4), st.integers(1, 4), st.lists(st.integers(0, 4), min_size=2, max_size=2), st.booleans())
def test_weights_of_slots(t: int, s: int, lengths: list[int], together: bool) -> None:
    probabilities = torch.rand(2, 3, t, s).double().softmax(3)
    matrix = matrix_of_slots(1 if together else 2, s, 4)
    given_lengths = None if together else torch.tensor(lengths)
    for by_head in (True, False):
        weights = weights_of_slots(probabilities, matrix, given_lengths, by_head)
        for b in range(2):
            n = 4 if together else max(1, lengths[b])
            expected = probabilities[b] @ _token_shares(matrix[b % len(matrix), :, :n])
            expected = expected if by_head else expected.mean(0, keepdim=True)
            torch.testing.assert_close(weights[b, ..., :n], expected)
            assert not weights[b, ..., n:].any()


@given(st.integers(1, 5), st.integers(1, 4), st.integers(-3, 4))
def test_weights_of_slots_that_grow(t: int, s: int, first: int) -> None:
    """Those of a query are of the tokens up to its own, less a window."""
    probabilities, n = torch.rand(2, 3, t, s).double().softmax(3), max(0, first) + t
    matrix = matrix_of_slots(s, n)
    weights = weights_of_growing_slots(probabilities, matrix, first)
    for i in range(t):
        seen = max(0, first + i + 1)
        expected = probabilities[:, :, i] @ _token_shares(matrix[:, :seen])
        torch.testing.assert_close(weights[:, :, i, :seen], expected)
        assert not weights[:, :, i, seen:].any()


def test_padding_of_the_last_tokens_has_no_weight() -> None:
    weights, padding = torch.rand(2, 3, 4, 5), padding_of(padding_mask([3, 1]))
    expected = weights.clone()
    expected[1, :, :, 3:] = 0.0
    assert torch.equal(without_padding(weights, padding), expected)
    assert without_padding(weights, None) is weights
