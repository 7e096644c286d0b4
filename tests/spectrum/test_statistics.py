"""Running sums against what they are sums of."""

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
