"""Every kind of projection equals the product with a matrix that is written down by hand."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules import LinearProjection
from linformer_fairseq.modules.ops.naive import max_pool
from tests.memory import peak_bytes
from tests.reference import PROJECTIONS, matrix_of

every_kind = pytest.mark.parametrize("kind", PROJECTIONS)


@every_kind
@given(
    lengths=st.lists(st.integers(1, 24), min_size=1, max_size=4),
    k=st.integers(1, 24),
    heads=st.sampled_from([None, 2]),
    features_of_heads=st.booleans(),
)
def test_slots_are_the_product_with_the_matrix(
    kind: str, lengths: list[int], k: int, heads: int | None, features_of_heads: bool
) -> None:
    """Max pooling takes the maxima over the same windows."""
    projection = PROJECTIONS[kind](k, 24, heads).double()
    for parameter in projection.parameters():
        torch.nn.init.normal_(parameter)
    n, batch, groups = max(lengths), len(lengths), 2 if features_of_heads else 1
    x = torch.zeros(n, batch, groups, 3, dtype=torch.float64)
    for sentence, length in enumerate(lengths):
        x[:length, sentence] = torch.randn(length, groups, 3)
    slots, matrix = projection(x, torch.tensor(lengths)), projection.matrix(n, torch.tensor(lengths), x.dtype)
    filled = projection.filled_slots(torch.tensor(lengths))
    for sentence, length in enumerate(lengths):
        for head in range(heads or groups):
            tokens = x[:length, sentence, head % groups]
            expected = matrix_of(projection, head, length)
            if projection.masks_empty_slots:
                assert len(expected) == filled[sentence]
            found = matrix[sentence % len(matrix), head % matrix.size(1), : len(expected), :length]
            torch.testing.assert_close(found, expected)
            out = slots[sentence, head % slots.size(1), : len(expected)]
            torch.testing.assert_close(out, max_pool(tokens, k) if kind == "max-pool" else expected @ tokens)
    assert slots.size(2) == projection.num_slots(n) <= k


def test_starts() -> None:
    k, n = 16, 256
    xavier = LinearProjection(k, n).weight
    assert xavier.abs().max() <= (6 / (k + n)) ** 0.5
    assert xavier.std().item() == pytest.approx((2 / (k + n)) ** 0.5, rel=0.05)
    # each head starts as a matrix of its own would, not as one tensor of three axes
    heads = LinearProjection(k, n, num_heads=3).weight
    assert heads.std().item() == pytest.approx((2 / (k + n)) ** 0.5, rel=0.05)
    assert LinearProjection(k, n, init="normal").weight.std().item() == pytest.approx(k**-0.5, rel=0.05)
    identity = LinearProjection(k, n, init="identity").weight
    assert torch.equal(identity[:, :k], torch.eye(k))
    assert 0 < identity[:, k:].abs().max() <= (6 / (k + n)) ** 0.5
    assert PROJECTIONS["pooled-linear"](k, n).weight.abs().max() == 0
    assert torch.equal(PROJECTIONS["conv"](k, n).weight, torch.full((n // k,), k / n))


@given(start=st.integers(-12, 12), length=st.integers(1, 12), heads=st.sampled_from([None, 2]))
def test_columns(start: int, length: int, heads: int | None) -> None:
    projection = LinearProjection(3, 10, heads)
    padded = torch.nn.functional.pad(projection.weight.view(-1, 3, 10), (12, 20))
    assert torch.equal(projection.columns(start, length), padded[..., start + 12 : start + 12 + length])


def test_slots_that_tokens_are_fitted_to() -> None:
    """Only learned matrices have columns to fit."""
    slots = {kind: projection(3, 24).slots_to_fit(7) for kind, projection in PROJECTIONS.items()}
    assert slots.pop("linear").tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert slots.pop("pooled-linear").tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert set(slots.values()) == {None}


@pytest.mark.parametrize(("n", "batch"), [(24, 4), (3, 1)])
def test_one_product_for_e_and_f_is_both(n: int, batch: int) -> None:
    for kind in ("linear", "pooled-linear"):
        keys, values = (PROJECTIONS[kind](3, 24).double() for _ in range(2))
        for projection in (keys, values):
            torch.nn.init.normal_(projection.weight)
        x, lengths = torch.randn(n, batch, 1, 5, dtype=torch.float64), torch.full((batch,), n)
        for requires_grad in (False, True):  # with a gradient it is always one
            together = keys.with_values(values, x.requires_grad_(requires_grad), lengths)
            for one, projection in zip(together, (keys, values), strict=True):
                torch.testing.assert_close(one, projection(x, lengths))


@every_kind
@pytest.mark.parametrize(("k", "sentence"), [(0, "at least 1"), (-3, "at least 1"), (65, "larger than the longest")])
def test_refuses_an_impossible_k(kind: str, k: int, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        PROJECTIONS[kind](k, 64)


def test_refuses_an_unknown_initialisation() -> None:
    with pytest.raises(ValueError, match="unknown initialisation 'magic'"):
        LinearProjection(4, 8, init="magic")


def test_convolution_does_not_copy_the_tokens_for_every_head() -> None:
    x = torch.randn(1024, 2, 1, 16)
    projection, lengths = PROJECTIONS["conv"](8, 1024, num_heads=8), torch.full((2,), 1024)
    assert peak_bytes(lambda: projection(x, lengths)) < 2 * x.nbytes
