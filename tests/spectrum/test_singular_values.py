"""Matrices whose spectrum is known."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.spectrum.statistics import cumulative, rank_holding, singular_values


def matrix_with(values: list[float], rows: int, columns: int) -> torch.Tensor:
    """A random matrix with these singular values."""
    left, _ = torch.linalg.qr(torch.randn(rows, rows, dtype=torch.float64))
    right, _ = torch.linalg.qr(torch.randn(columns, columns, dtype=torch.float64))
    return left[:, : len(values)] @ torch.diag(torch.tensor(values, dtype=torch.float64)) @ right[: len(values)]


def test_a_known_spectrum() -> None:
    maps = torch.stack([matrix_with([6.0, 3.0, 1.0], 7, 5), matrix_with([5.0], 7, 5)])
    values = singular_values(maps)
    torch.testing.assert_close(values[0], torch.tensor([6.0, 3.0, 1.0, 0.0, 0.0], dtype=torch.float64))
    curves = cumulative(values)
    torch.testing.assert_close(curves[0], torch.tensor([0.6, 0.9, 1.0, 1.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(curves[1], torch.ones(5, dtype=torch.float64))
    # squares 36, 9 and 1 of 46: shares 0.783, 0.978 and 1
    assert [rank_holding(values, energy).tolist() for energy in (0.78, 0.79, 0.97, 0.98)] == [
        [1, 1],
        [2, 1],
        [2, 1],
        [3, 1],
    ]


def test_equal_values_need_their_share_of_ranks() -> None:
    values = singular_values(torch.eye(10).unsqueeze(0))
    assert [rank_holding(values, energy).item() for energy in (0.1, 0.5, 0.9, 0.95)] == [1, 5, 9, 10]


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8), st.floats(0.05, 0.95))
def test_the_best_matrix_of_that_rank_misses_no_more(rows: int, columns: int, rank: int, energy: float) -> None:
    """Against the definition: what is left of the matrix without its largest components."""
    torch.manual_seed(rows * 100 + columns * 10 + rank)
    x = torch.rand(rows, rank, dtype=torch.float64) @ torch.rand(rank, columns, dtype=torch.float64)
    found = rank_holding(singular_values(x), energy).item()
    assert found <= min(rows, columns, rank)
    u, s, v = torch.linalg.svd(x, full_matrices=False)

    def missed(r: int) -> float:
        return ((x - u[:, :r] * s[:r] @ v[:r]).square().sum() / x.square().sum()).item()

    assert missed(found) <= 1 - energy + 1e-6
    if found > 1:
        assert missed(found - 1) > 1 - energy - 1e-6


def test_half_precision_is_enough_to_start_from() -> None:
    values = singular_values(torch.eye(3, dtype=torch.float16))
    assert values.dtype == torch.float64
    assert values.tolist() == pytest.approx([1.0, 1.0, 1.0])
