"""Every kind of projection equals the product with a matrix that is written down by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules import LinearProjection
from linformer_fairseq.modules.projections import mean_matrix
from tests.naive import max_pool, pooling_matrix
from tests.reference import PROJECTIONS, matrix_of, padding_mask

every_kind = pytest.mark.parametrize("kind", PROJECTIONS)


@every_kind
@given(lengths=st.lists(st.integers(1, 24), min_size=1, max_size=4), k=st.integers(1, 24), padded=st.booleans())
def test_slots_are_the_product_with_the_matrix(kind: str, lengths: list[int], k: int, padded: bool) -> None:
    """Max pooling takes the maxima over the same windows as means."""
    lengths = lengths if padded else [lengths[0]] * len(lengths)
    projection = PROJECTIONS[kind](k, 24).double()
    for parameter in projection.parameters():
        torch.nn.init.normal_(parameter)
    n, given_lengths = max(lengths), torch.tensor(lengths) if padded else None
    x = torch.randn(n, len(lengths), 3, dtype=torch.float64).masked_fill(padding_mask(lengths).t()[..., None], 0.0)
    slots, matrix = projection(x, given_lengths), projection.matrix(n, given_lengths, x)
    mask = projection.slot_mask(n, given_lengths)
    assert len(slots) == projection.num_slots(n) <= k
    for sentence, length in enumerate(lengths):
        tokens, expected = x[:length, sentence], matrix_of(projection, length)
        if mask is not None:
            assert mask[sentence].sum() == len(expected)
            assert mask[sentence, ..., : len(expected)].all()
        torch.testing.assert_close(matrix[sentence % len(matrix), : len(expected), :length], expected.to(x))
        out = slots[: len(expected), sentence]
        torch.testing.assert_close(out, max_pool(tokens, k) if kind == "max-pool" else expected.to(x) @ tokens)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.integers(1, 12))
def test_windows_cover_a_sentence_and_nothing_else(lengths: list[int], k: int) -> None:
    n = max(1, *lengths)
    found = mean_matrix(torch.tensor(lengths), n, k, torch.float64)
    for sentence, length in enumerate(lengths):
        matrix = pooling_matrix(max(1, length), k)
        torch.testing.assert_close(found[sentence, : len(matrix), : max(1, length)], matrix)
        assert not found[sentence, len(matrix) :].any()
        assert not found[sentence, :, max(1, length) :].any()


def test_starts() -> None:
    k, n = 16, 256
    xavier = LinearProjection(k, n).weight
    assert xavier.abs().max() <= (6 / (k + n)) ** 0.5
    assert xavier.std().item() == pytest.approx((2 / (k + n)) ** 0.5, rel=0.05)
    (identity := LinearProjection(k, n)).start_as_identity()
    assert torch.equal(identity.weight[:, :k], torch.eye(k))
    assert 0 < identity.weight[:, k:].abs().max() <= (6 / (k + n)) ** 0.5
    assert torch.equal(PROJECTIONS["conv"](k, n).weight, torch.full((n // k,), k / n))


@every_kind
def test_refuses_an_impossible_k(kind: str) -> None:
    """Only learned E and F have no more slots than the longest sentence has tokens."""
    with pytest.raises(ValueError, match="k must be at least 1, not 0"):
        PROJECTIONS[kind](0, 64)
    if kind == "linear":
        with pytest.raises(ValueError, match="k = 65 is larger than the longest length N = 64"):
            LinearProjection(65, 64)
    else:
        assert PROJECTIONS[kind](65, 64)(torch.ones(64, 1, 2), None).shape == (64, 1, 2)
