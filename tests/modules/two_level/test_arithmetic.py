"""The arithmetic of two-level attention; tests/modules/test_base.py compares all of it with the formula."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.modules.ops.softmax_attention import scores
from linformer_fairseq.modules.two_level import arithmetic
from linformer_fairseq.modules.two_level.arithmetic import (
    CHOOSING,
    attend_to_rows,
    bias_of_windows,
    calibrated,
    means_of,
    ranked,
    rows_of_blocks,
    shares_of_windows,
    window_counts,
    window_table,
    with_windows_ahead,
    worth_by_means,
    worth_by_past,
)
from linformer_fairseq.modules.two_level.sizes import Sizes
from tests.naive import full_attention


@given(lengths=st.lists(st.integers(1, 70), min_size=1, max_size=3), width=st.sampled_from([1, 2, 3, 4, 32, 48, 64]))
def test_a_table_holds_means_and_then_tokens(lengths: list[int], width: int) -> None:
    n, sizes = max(lengths), Sizes(width, 1, 1)
    windows, bundle, padding = (
        -(-n // width),
        min(width & -width, 32),
        torch.arange(n)[:, None] >= torch.tensor(lengths),
    )
    x = torch.randn(n, len(lengths), 2, 4, dtype=torch.float64).masked_fill(padding[..., None, None], 0.0)
    counts = window_counts(torch.tensor(lengths), n, width)
    table = window_table(x, 2 * x, sizes, counts)
    first = -(-windows // bundle) * bundle
    torch.testing.assert_close(table.keys[:, :, first : first + n], x.permute(1, 2, 0, 3))
    torch.testing.assert_close(table.values, 2 * table.keys)
    assert table.keys.size(2) == first + windows * width
    for sentence, length in enumerate(lengths):
        own = x[:length, sentence].split(width)
        assert counts[sentence].tolist() == [len(w) for w in own] + [0] * (windows - len(own))
        for number, window in enumerate(own):
            torch.testing.assert_close(table.keys[sentence, :, number], window.mean(0))
    if set(lengths) == {n} and n % width == 0:
        torch.testing.assert_close(window_table(x, 2 * x, sizes, None)[1:4], table[1:4])


@given(
    length=st.integers(1, 50),
    block=st.sampled_from([1, 3, 8, 20]),
    windows=st.integers(1, 6),
    clusters=st.sampled_from([0, 2]),
    at_a_time=st.sampled_from([1, 1000, 9999]),
)
def test_blocks_choose_by_their_own_or_by_past_queries(
    length: int, block: int, windows: int, clusters: int, at_a_time: int
) -> None:
    """Whether the windows are judged for all blocks at once or for some at a time."""
    query, keys = (torch.randn(x, 2, 3, 4, dtype=torch.float64) for x in (length, 2 * windows))
    table = window_table(keys, keys, Sizes(2, 1, block, clusters), None)
    padding = torch.arange(length) >= torch.randint(length + 1, (2,))[:, None]
    by_head = query.permute(1, 2, 0, 3)
    by_means = torch.softmax(scores(by_head, means_of(table.tokens(), None)), 3)
    by_means.masked_fill_(padding[:, None, :, None], 0.0)
    by_tokens = torch.softmax(torch.einsum("tbhd,nbhd->bhtn", query, keys) / 2, 3).unflatten(3, (windows, 2)).sum(4)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arithmetic, "SCORES_AT_A_TIME", at_a_time)
        own, past = worth_by_means(query, table, padding), worth_by_past(query, table)
    starts = range(0, length, block)
    assert own.shape == past.shape == (2, 3, len(starts), windows)
    for number, start in enumerate(starts):
        torch.testing.assert_close(own[:, :, number], by_means[:, :, start : start + block].sum(2))
        expected = by_tokens[:, :, max(0, start - CHOOSING + 1) : start + 1].sum(2, keepdim=True)
        expected = with_windows_ahead(expected, table.sizes, None)[:, :, 0]
        torch.testing.assert_close(past[:, :, number], expected)


@given(queries=st.integers(1, 4), groups=st.integers(1, 3), tokens=st.integers(1, 5), seed=st.integers(0, 99))
def test_a_calibrated_mean_gets_what_the_tokens_get_that_it_stands_for(
    queries: int, groups: int, tokens: int, seed: int
) -> None:
    """By one query exactly; by several on average, of those that count; nothing where there is no such token."""
    torch.manual_seed(seed)
    own, keys = torch.randn(2, queries, 4, dtype=torch.float64), torch.randn(groups, tokens, 4, dtype=torch.float64)
    hidden, counted = torch.rand(2, groups, tokens) < 0.5, torch.rand(2, queries) < 0.7
    found = torch.einsum("bqd,gld->bqgl", own, keys) / 2
    bias = calibrated(own, found, keys.mean(1), hidden, counted)
    for block in range(2):
        some = own[block][counted[block]]
        for group in range(groups):
            closed = keys[group][~hidden[block, group]]
            each = (some @ closed.t() / 2).exp().sum(1).log() - some @ keys[group].mean(0) / 2
            expected = each.mean() if len(each) else torch.zeros((), dtype=torch.float64)
            torch.testing.assert_close(bias[block, group], expected)


@given(windows=st.integers(1, 9), block=st.integers(1, 40))
def test_a_window_is_worth_nine_tenths_of_the_best_before_it(windows: int, block: int) -> None:
    """Of as many as a block's queries pass, and one more."""
    worth = torch.rand(2, 3, 4, windows, dtype=torch.float64)
    expected, ahead = worth.clone(), math.ceil((block - 1) / 4) + 1
    for i in range(1, windows):
        expected[..., i] = torch.maximum(expected[..., i], 0.9 * worth[..., max(0, i - ahead) : i].amax(3))
    torch.testing.assert_close(with_windows_ahead(worth, Sizes(4, 1, block), None), expected)


def test_of_windows_worth_as_much_the_first_is_opened() -> None:
    assert ranked(torch.ones(1, 1, 3, 40)).tolist() == [[3 * [[*range(40)]]]]


def test_the_windows_after_those_attended_to_are_opened_but_none_beyond_the_end() -> None:
    worth = torch.tensor([0.1, 0.7, 0.0, 0.2, 0.0, 0.0]).expand(1, 1, 1, 6)
    counts = torch.tensor([[4, 4, 4, 2, 0, 0]])
    order = ranked(with_windows_ahead(worth, Sizes(4, 3, 8), counts)).flatten().tolist()
    assert order[:4] == [1, 2, 3, 0]
    assert {*order[4:]} == {4, 5}


def test_means_know_how_many_tokens_they_stand_for() -> None:
    """Where the tokens of a window are alike, what is opened makes no difference: this is full attention."""
    width, lengths = 4, [22, 8, 1]
    tokens = torch.randn(6, 3, 1, 4, dtype=torch.float64).repeat_interleave(width, 0)[:22]
    keys = tokens.masked_fill((torch.arange(22)[:, None] >= torch.tensor(lengths))[..., None, None], 0.0)
    query = torch.randn(10, 3, 1, 4, dtype=torch.float64)
    sizes = Sizes(width, 2, 5)
    table = window_table(keys, keys, sizes, window_counts(torch.tensor(lengths), 22, width))
    opened = ranked(worth_by_past(query, table))[..., :2]
    rows = rows_of_blocks(opened, bias_of_windows(opened, table), table)
    out, weights = attend_to_rows(query, rows, table, 0.0, need_weights=True)
    for sentence, n in enumerate(lengths):
        expected, expected_weights = full_attention(query[:, sentence, 0], *[keys[:n, sentence, 0]] * 2)
        torch.testing.assert_close(out[sentence, 0], expected)
        torch.testing.assert_close(weights[sentence, 0, :, :n], expected_weights)
        assert not weights[sentence, 0, :, n:].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("autocast", [False, True])
def test_shares_of_scores_beyond_half_precision(dtype: torch.dtype, autocast: bool) -> None:
    query, keys = (300 * torch.randn(2, 2, length, 64).to(dtype) for length in (9, 20))
    hidden = torch.arange(20) >= 14
    with torch.autocast("cpu", dtype, enabled=autocast):
        shares = shares_of_windows(scores(query, keys).masked_fill_(hidden, -torch.inf), 4)
    assert shares.dtype == torch.float32
    torch.testing.assert_close(shares.sum(3), torch.ones(2, 2, 9))
    assert not shares[..., 4].any()
