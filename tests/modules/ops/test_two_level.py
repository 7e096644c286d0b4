"""The steps of two-level attention; tests/modules/test_base.py compares all of it with the formula."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops import thresholds
from linformer_fairseq.modules.ops.naive import full_attention
from linformer_fairseq.modules.ops.two_level import (
    LevelSizes,
    Summaries,
    attend_by_blocks,
    choice_of,
    open_windows,
    ranges_of_windows,
    ranked,
    shares_of_windows,
    token_table,
    weights_by_blocks,
    window_sizes,
    worth_to_own_queries,
    worth_to_past_queries,
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
    first = -(-sizes.windows(n) // sizes.group) * sizes.group
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
        torch.testing.assert_close(shares_of_windows(query, Summaries(table, ranges, tokens), some), 2 * expected)


@given(
    length=st.integers(1, 30),
    block=st.integers(1, 8),
    windows=st.integers(1, 6),
    scored=st.sampled_from([None, 1, 100]),
)
def test_blocks_choose_by_their_own_or_by_past_queries(
    length: int, block: int, windows: int, scored: int | None
) -> None:
    """Whether the windows are judged for all blocks at once or for some at a time."""
    query, keys = (torch.randn(x, 2, 3, 4, dtype=torch.float64) for x in (length, 2 * windows))
    table = token_table(keys, LevelSizes(2, 1, 1), None)
    means, ranges = table[:, :, :windows], ranges_of_windows(table, 2, windows, None)
    summaries = Summaries(means, ranges, None)
    padding = torch.arange(length) >= torch.randint(length + 1, (2,))[:, None]
    shares = shares_of_windows(query, summaries)
    counted = shares.masked_fill(padding[:, None, :, None], 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(thresholds._BY_TYPE, "cpu", thresholds.CPU._replace(scored=scored))
        own = worth_to_own_queries(query, summaries, block, padding)
        past = worth_to_past_queries(query, summaries, block)
    starts = range(0, length, block)
    assert own.shape == past.shape == (2, 3, len(starts), windows)
    for number, start in enumerate(starts):
        torch.testing.assert_close(own[:, :, number], counted[:, :, start : start + block].sum(2))
        torch.testing.assert_close(past[:, :, number], shares[:, :, max(0, start - block + 1) : start + 1].sum(2))


@given(windows=st.integers(1, 9), ahead=st.integers(0, 12))
def test_a_window_is_worth_half_of_what_the_best_before_it_is_as_well(windows: int, ahead: int) -> None:
    worth = torch.rand(2, 3, 4, windows, dtype=torch.float64)
    expected = worth.clone()
    for i in range(1, windows):
        if ahead:
            expected[..., i] += worth[..., max(0, i - ahead) : i].amax(3) / 2
    assert torch.equal(ranked(worth, ahead), expected.argsort(dim=3, descending=True))


def test_of_windows_worth_the_same_the_first_is_opened() -> None:
    assert ranked(torch.ones(1, 1, 3, 40)).tolist() == [[3 * [[*range(40)]]]]


def test_the_windows_after_those_attended_to_are_opened_but_none_beyond_the_end() -> None:
    worth = torch.tensor([0.1, 0.7, 0.0, 0.2, 0.0, 0.0]).expand(1, 1, 1, 6)
    sizes, tokens = LevelSizes(4, 3, 8), torch.tensor([[4, 4, 4, 2, 0, 0]])
    assert sizes.ahead == 2
    order = ranked(worth, sizes.ahead, tokens).flatten().tolist()
    assert order[:4] == [1, 3, 2, 0]
    assert {*order[4:]} == {4, 5}
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
    windows = Summaries(table[:, :, :6], ranges_of_windows(table, width, 6, counts), counts)
    opened = ranked(worth_to_past_queries(query, windows, sizes.block), sizes.ahead, counts)[..., :2]
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
        shares = shares_of_windows(query, Summaries(table[:, :, :5], ranges_of_windows(table, 4, 5, tokens), tokens))
    assert shares.dtype == torch.float32
    torch.testing.assert_close(shares.sum(3), torch.full((2, 2, 9), 2.0))
    assert not shares[..., 4].any()
