"""The steps of two-level attention; tests/modules/test_base.py compares all of it with the formula."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.naive import full_attention
from linformer_fairseq.modules.ops.two_level import (
    LevelSizes,
    attend_by_blocks,
    choice_of,
    open_windows,
    ranges_of_windows,
    rank_by_own_queries,
    rank_by_past_queries,
    rank_by_sums,
    shares_of_windows,
    token_table,
    weights_by_blocks,
    window_sizes,
)


@given(
    lengths=st.lists(st.integers(0, 70), min_size=1, max_size=3),
    sizes=st.builds(LevelSizes, st.sampled_from([1, 2, 3, 4, 32, 48, 64]), st.just(1), st.just(1)),
)
def test_a_table_holds_means_and_then_tokens(lengths: list[int], sizes: LevelSizes) -> None:
    n = max(1, *lengths)
    x = torch.randn(n, len(lengths), 2, 4, dtype=torch.float64)
    x = x.masked_fill((torch.arange(n)[:, None] >= torch.tensor(lengths))[..., None, None], 0.0)
    tokens = window_sizes(torch.tensor(lengths), sizes.windows(n), sizes.width)
    table = token_table(x, sizes, tokens)
    first = sizes.mean_rows(n)
    assert first % sizes.group == table.size(2) % sizes.group == sizes.width % sizes.group == 0
    torch.testing.assert_close(table[:, :, first : first + n], x.permute(1, 2, 0, 3))
    for sentence, length in enumerate(lengths):
        own = [x[:length, sentence][i : i + sizes.width] for i in range(0, length, sizes.width)]
        assert tokens[sentence].tolist() == [len(w) for w in own] + [
            0 if own or i else 1 for i in range(sizes.windows(n) - len(own))
        ]
        for number, window in enumerate(own):
            torch.testing.assert_close(table[sentence, :, number], window.mean(0))
    if set(lengths) == {n} and n % sizes.width == 0:
        torch.testing.assert_close(token_table(x, sizes, None), table)


@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=3), width=st.sampled_from([2, 3, 4, 48, 64]))
def test_ranges_are_those_of_the_tokens_of_windows(lengths: list[int], width: int) -> None:
    n, sizes = max(lengths), LevelSizes(width, 1, 1)
    windows, padding = sizes.windows(n), torch.arange(n)[:, None] >= torch.tensor(lengths)
    keys = torch.randn(n, len(lengths), 2, 4, dtype=torch.float64).masked_fill(padding[..., None, None], 0.0)
    tokens = window_sizes(torch.tensor(lengths), windows, width)
    ranges = ranges_of_windows(token_table(keys, sizes, tokens), width, windows, tokens)
    for sentence, length in enumerate(lengths):
        for number, window in enumerate(keys[:length, sentence].split(width)):
            lowest, highest = ranges[sentence, :, number].unbind(1)
            assert torch.equal(lowest, window.amin(0))
            assert torch.equal(highest, window.amax(0))
    if set(lengths) == {n} and n % width == 0:
        assert torch.equal(ranges_of_windows(token_table(keys, sizes, None), width, windows, None), ranges)


def test_shares_of_windows_of_one_token_are_those_of_full_attention() -> None:
    """By means, and by ranges again; a query may be kept from seeing some."""
    query, keys = (torch.randn(length, 2, 3, 4, dtype=torch.float64) for length in (5, 9))
    tokens = (torch.arange(9) < torch.tensor([9, 6])[:, None]).long()
    table = keys.permute(1, 2, 0, 3)
    hidden = torch.rand(5, 9) < torch.arange(9) / 9
    ranges, products = ranges_of_windows(table, 1, 9, tokens), torch.einsum("tbhd,nbhd->bhtn", query, keys) / 2
    for some, mask in ((None, torch.tensor(False)), (hidden, hidden)):
        expected = torch.softmax(products.masked_fill((tokens == 0)[:, None, None] | mask, -torch.inf), 3)
        torch.testing.assert_close(shares_of_windows(query, table, ranges, tokens, some), 2 * expected)


@given(length=st.integers(1, 30), block=st.integers(1, 8), windows=st.integers(1, 6), width=st.integers(1, 9))
def test_blocks_choose_by_their_own_or_by_past_queries(length: int, block: int, windows: int, width: int) -> None:
    shares = torch.rand(2, 3, length, windows, dtype=torch.float64)
    counted = torch.randint(length + 1, (2,))
    padding = torch.arange(length) >= counted[:, None]
    sizes = LevelSizes(width, 1, block)
    own, past = rank_by_own_queries(shares, block, padding), rank_by_past_queries(shares, sizes, None)
    for number, start in enumerate(range(0, length, block)):
        choosing = shares[:, :, max(0, start - block + 1) : start + 1]
        worth = choosing.sum(2)
        for i in reversed(range(1, windows)):
            passed = worth[..., max(0, i - sizes.ahead) : i]
            if sizes.ahead:
                worth[..., i] += passed.amax(2) / 2
        assert torch.equal(past[:, :, number], worth.argsort(dim=2, descending=True))
        assert torch.equal(past[:, :, number : number + 1], rank_by_sums(choosing, sizes.ahead))
        for sentence, count in enumerate(counted.tolist()):
            worth = shares[sentence, :, start : min(start + block, max(start, count))].sum(1)
            assert torch.equal(own[sentence, :, number], worth.argsort(dim=1, descending=True, stable=True))


def test_of_windows_worth_the_same_the_first_is_opened() -> None:
    assert rank_by_sums(torch.ones(1, 1, 3, 40)).flatten().tolist() == [*range(40)]


def test_the_windows_after_those_attended_to_are_opened_but_none_beyond_the_end() -> None:
    shares = torch.tensor([0.1, 0.7, 0.0, 0.2, 0.0, 0.0]).expand(1, 1, 8, 6)
    sizes, tokens = LevelSizes(4, 3, 8), torch.tensor([[4, 4, 4, 2, 0, 0]])
    assert sizes.ahead == 2
    for ranked in (rank_by_past_queries(shares, sizes, tokens)[:, :, :1], rank_by_sums(shares, 2, tokens)):
        assert ranked[..., :4].flatten().tolist() == [1, 3, 2, 0]
        assert {*ranked[..., -2:].flatten().tolist()} == {4, 5}
    assert LevelSizes(4, 3, 1).ahead == 0


def test_means_know_how_many_tokens_they_stand_for() -> None:
    """Where the tokens of a window are alike, what is opened makes no difference: this is full attention."""
    width, lengths = 4, [22, 8, 1]
    tokens = torch.randn(6, 3, 1, 4, dtype=torch.float64).repeat_interleave(width, 0)[:22]
    keys = tokens.masked_fill((torch.arange(22)[:, None] >= torch.tensor(lengths))[..., None, None], 0.0)
    query = torch.randn(10, 3, 1, 4, dtype=torch.float64)
    sizes = LevelSizes(width, 2, 5)
    counts = window_sizes(torch.tensor(lengths), 6, width)
    table = token_table(keys, sizes, counts)
    shares = shares_of_windows(query, table[:, :, :6], ranges_of_windows(table, width, 6, counts), counts)
    opened = rank_by_past_queries(shares, sizes, counts)[..., :2]
    source = open_windows(table, table, choice_of(opened, sizes, 6, counts, table.dtype), sizes.group)
    out = attend_by_blocks(query, source, 5, 0.0)
    weights = weights_by_blocks(query, source, opened, 5, width, 6, counts)
    for sentence, n in enumerate(lengths):
        expected, expected_weights = full_attention(query[:, sentence, 0], *[keys[:n, sentence, 0]] * 2)
        torch.testing.assert_close(out[sentence, 0], expected)
        torch.testing.assert_close(weights[sentence, 0, :, :n], expected_weights)
        assert not weights[sentence, 0, :, n:].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_shares_of_scores_beyond_half_precision(dtype: torch.dtype, autocast: bool) -> None:
    query, table = 300 * torch.randn(9, 2, 2, 64).to(dtype), 300 * torch.randn(2, 2, 25, 64).to(dtype)
    tokens = torch.tensor([[4, 4, 4, 2, 0]] * 2)
    with torch.autocast("cpu", dtype, enabled=autocast):
        shares = shares_of_windows(query, table[:, :, :5], ranges_of_windows(table, 4, 5, tokens), tokens)
    assert shares.dtype == torch.float32
    torch.testing.assert_close(shares.sum(3), torch.full((2, 2, 9), 2.0))
    assert not shares[..., 4].any()
