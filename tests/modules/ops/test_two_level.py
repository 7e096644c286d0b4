"""The form in tiles equals the dense one, which tests/modules/test_base.py compares with the formula."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from linformer_fairseq.modules.ops import two_level
from linformer_fairseq.modules.ops.two_level import TwoLevelSource, two_level_attention
from linformer_fairseq.modules.ops.windows import even_windows
from tests.reference import assert_same_gradients

N = 40


def some_source(lengths: list[int], k: int, heads: int = 2, dtype: torch.dtype = torch.float64) -> TwoLevelSource:
    """Returns random keys and values of four features, and the means of their windows."""
    n = max(1, *lengths)
    windows = even_windows(n, torch.tensor(lengths), k)
    means = windows.mean_matrix(dtype)
    tokens = (torch.randn(len(lengths), heads, n, 4, dtype=dtype) for _ in range(2))
    keys, values = (torch.cat([means @ x, x], 2).requires_grad_() for x in tokens)
    return TwoLevelSource(keys, values, windows)


def attend(tiles: bool, query: Tensor, source: TwoLevelSource, opened: int, dropout: float = 0.0) -> Tensor:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(two_level, "tiling_pays", lambda *_: tiles)
        return two_level_attention(query, source, opened, dropout)


@given(
    lengths=st.lists(st.integers(0, N), min_size=1, max_size=3),
    queries=st.integers(0, 9),
    k=st.integers(1, 12),
    opened=st.integers(1, 6),
    heads=st.sampled_from([1, 3]),
)
def test_tiles_equal_the_dense_form(lengths: list[int], queries: int, k: int, opened: int, heads: int) -> None:
    """Values and gradients are equal, for empty sentences and for no queries too."""
    source = some_source(lengths, k, heads)
    query = torch.randn(len(lengths), heads, queries, 4, dtype=torch.float64, requires_grad=True)
    tiles, dense = (attend(way, query, source, opened) for way in (True, False))
    torch.testing.assert_close(tiles, dense)
    assert dense.isfinite().all()
    assert_same_gradients(tiles, dense, [query, source.keys, source.values])


@given(st.integers(0, 10_000))
def test_every_pair_has_a_place_in_a_tile_of_its_slot(seed: int) -> None:
    """Every assignment of pairs to slots fits, even if all pairs have the same slot."""
    generator = torch.Generator().manual_seed(seed)
    pairs, slots = (int(torch.randint(1, 30, (), generator=generator)) for _ in range(2))
    allowed = int(torch.randint(1, slots + 1, (), generator=generator))
    of_pairs = torch.randint(0, allowed, (3, pairs), generator=generator)
    tiles = two_level._tiles(of_pairs, slots)
    for places, pair_slots, tile_slots in zip(tiles.places, of_pairs, tiles.slots, strict=True):
        assert len(set(places.tolist())) == pairs
        assert places.max() < len(tile_slots) * tiles.size
        assert torch.equal(tile_slots[places // tiles.size], pair_slots)
    x = torch.randn(3, pairs, 2)
    assert torch.equal(tiles.collect(tiles.spread(x)), x)


def test_each_slot_is_opened_once_in_half_precision() -> None:
    """A sentence with fewer tokens than open slots opens empty slots, and never one slot twice."""
    windows = even_windows(9, torch.tensor([2]), 5)
    for score in (-100.0, -60000.0):
        scores = torch.full((1, 1, 1, 5), score, dtype=torch.float16)
        assert sorted(two_level._best_slots(scores, windows, 4).flatten().tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("tiles", [False, True])
def test_dropout_keeps_the_mean(tiles: bool) -> None:
    source, query = some_source([12], 4), torch.randn(1, 2, 1, 4, dtype=torch.float64)
    expected = attend(tiles, query, source, 2)
    out = attend(tiles, query.expand(1, 2, 4000, 4), source, 2, dropout=0.3)
    assert out.std(2).min() > 0.01
    torch.testing.assert_close(out.mean(2, keepdim=True), expected, rtol=0.05, atol=0.08)


def test_where_tiles_pay() -> None:
    cases = {(384, 32, 3): True, (383, 32, 3): False, (2000, 12, 3): True, (2000, 11, 3): False}
    assert {case: two_level.tiling_pays(*case) for case in cases} == cases
