"""Known spectra are found, and running sums equal sums over all sentences."""

import numpy
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.spectrum.statistics import (
    BINS,
    Statistics,
    cumulative,
    rank_holding,
    rank_quantile,
    singular_values,
)


def matrix_with(values: list[float], rows: int, columns: int) -> torch.Tensor:
    """Returns a random matrix with these singular values."""
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
    ranks = [rank_holding(values, energy)[0].item() for energy in (0.78, 0.79, 0.97, 0.98)]
    assert ranks == [1, 2, 2, 3]


def test_equal_values_need_their_share_of_ranks() -> None:
    values = singular_values(torch.eye(10, dtype=torch.float16)[None])
    assert [rank_holding(values, energy).item() for energy in (0.1, 0.5, 0.9, 0.95)] == [1, 5, 9, 10]


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 8), st.floats(0.05, 0.95))
def test_the_best_matrix_of_that_rank_misses_no_more(rows: int, columns: int, rank: int, energy: float) -> None:
    """The error is that of the definition: the norm of the matrix without its largest components."""
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


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=8), st.floats(0.3, 0.95))
def test_sums_over_sentences(shapes: list[tuple[int, int]], energy: float) -> None:
    torch.manual_seed(len(shapes))
    maps = [torch.softmax(3 * torch.randn(2, 3, rows, columns), -1) for rows, columns in shapes]
    statistics = Statistics(2, 3, longest=7, energy=energy)
    for sentence in maps:
        statistics.add(sentence)

    def padded(curve: torch.Tensor) -> torch.Tensor:
        return torch.cat([curve, curve.new_ones(*curve.shape[:2], 7 - curve.size(-1))], -1)

    values = [singular_values(sentence) for sentence in maps]
    curves = torch.stack([padded(cumulative(v)) for v in values])  # (sentences, L, H, R)
    ranks = torch.stack([rank_holding(v, energy) for v in values])
    assert statistics.sentences == len(maps)
    assert statistics.tokens == sum(columns for _, columns in shapes)
    torch.testing.assert_close(statistics.curve(), curves.mean(0))
    torch.testing.assert_close(statistics.mean_rank(), ranks.double().mean(0))
    assert statistics.rank_counts.sum(-1).eq(len(maps)).all()
    for share in (0.1, 0.5, 0.9):
        flat = curves.flatten(0, 2).numpy()
        exact = numpy.quantile(flat, share, axis=0, method="inverted_cdf")
        assert numpy.abs(statistics.curve_quantile(share).numpy() - exact).max() <= 1 / BINS + 1e-9
        expected = numpy.quantile(ranks.flatten().numpy(), share, method="inverted_cdf")
        assert rank_quantile(statistics.rank_counts, share) == expected
