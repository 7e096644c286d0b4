"""The arithmetic of two levels: windows and their means, which of them blocks of queries open, and the attention.

A block opens the windows that are worth most, by the sum over queries of the shares P̄ that they would give to windows.
A query often asks for one token, which a mean hides among the others of its window. So P̄ is the sum of the shares by
means and of those that follow from the largest score that a window's tokens can have, given its lowest and its highest
key, feature by feature (Tang et al., 2024):

    P̄ = softmax(Q K̄ᵀ / √d + log w) + softmax((min(Q, 0) K_minᵀ + max(Q, 0) K_maxᵀ) / √d)

In cross-attention few queries choose, and P̄ is their attention to all tokens of a window.

The choice has no gradient. Keys and values are tables: the means of all windows, and then the tokens. The rows that a
block attends to are gathered in groups of neighbours, and one call of torch's fused attention does the rest, with a
bias that hides the means of opened windows. Every query attends to s + m w rows.

Shapes: T queries, n tokens, B sentences, each with h hypotheses side by side, H heads, d features per head, s windows
of w tokens, Y blocks of q queries that open m windows, L rows of a block, X = B h H, g rows of a group, and
R = s' + s w rows of a table, with s' = s rounded up to whole groups.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import fold_beams, scores, unfold_beams
from linformer_fairseq.modules.ops.blocks import in_blocks
from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.two_level.sizes import Sizes

LARGEST_GROUP = 32  # rows that are gathered at a time, at most: on a CPU larger groups are no faster
CHOOSING = 8
"""Queries that choose for a block of cross-attention: where the next ones will look, the last ones know best."""
SCORES_AT_A_TIME = 1 << 20  # scores of windows made at a time on a CPU, about: so many stay in its caches


class WindowSummaries(NamedTuple):
    """What is known of the keys of windows when blocks choose among them."""

    means: Tensor  # their mean keys, (B, H, s, d)
    ranges: Tensor  # their lowest and their highest keys, feature by feature, (B, H, s, 2, d)
    counts: Tensor | None  # the tokens of each, (B, s); None where every window has w


class WindowTable(NamedTuple):
    """The keys and values of B sentences in two levels: the means of windows, and then their tokens."""

    sizes: Sizes
    windows: int  # s
    keys: Tensor  # (B, H, R, d)
    values: Tensor  # (B, H, R, d)
    counts: Tensor | None  # as in `WindowSummaries`

    def tokens(self) -> Tensor:
        """The keys of the tokens of each window, (B, H, s, w, d)."""
        return self.keys[:, :, -self.windows * self.sizes.width :].unflatten(2, (self.windows, -1))


class TokenTable(NamedTuple):
    """The keys and values of B sentences that are attended to in full."""

    keys: Tensor  # (B, H, n, d)
    values: Tensor  # (B, H, n, d)
    bias: Tensor | None  # added to scores, (B, 1, 1, n): -inf for padding; None where there is none


class BlockRows(NamedTuple):
    """The rows of a table that blocks attend to: means of all windows, and the tokens of those that they open."""

    opened: Tensor  # the windows that each block opens, (B h, H, Y, m)
    groups: Tensor  # the numbers of groups of rows within a sentence and head, (B h, H, Y, L / g)
    bias: Tensor  # added to scores, (B h, H, Y, L)


def window_counts(lengths: Tensor, n: int, width: int) -> Tensor:
    """The tokens of each window of sentences with these lengths (B,), up to n: (B, s)."""
    starts = torch.arange(0, n, width, device=lengths.device)
    return (lengths[:, None] - starts).clamp(0, width)


def window_table(keys: Tensor, values: Tensor, sizes: Sizes, counts: Tensor | None) -> WindowTable:
    """Makes a table of keys and values (n, B, H, d), which are zero beyond the end of a sentence.

    Args:
        counts: the tokens of each window, (B, s); None where every window has w.
    """
    group, tables = _rows_of_group(sizes.width), []
    for x in (keys, values):
        windows = in_blocks(x, sizes.width, 0).permute(2, 3, 0, 1, 4)  # (B, H, s, w, d)
        means = in_blocks(means_of(windows, counts), group, 2).flatten(2, 3)
        tables.append(torch.cat([means, windows.flatten(2, 3)], 2))
    return WindowTable(sizes, -(-len(keys) // sizes.width), tables[0], tables[1], counts)


def means_of(windows: Tensor, counts: Tensor | None) -> Tensor:
    """The means of windows (B, H, s, w, d), of which each has so many tokens, (B, s), or w: (B, H, s, d)."""
    if counts is None:
        return windows.mean(3)
    sums = windows.sum(3, dtype=at_least_float32(windows.dtype))
    return (sums / counts.clamp(min=1)[:, None, :, None]).to(windows.dtype)


@torch.no_grad()
def summaries_of(table: WindowTable) -> WindowSummaries:
    """What blocks of an encoder choose by."""
    tokens, counts = table.tokens(), table.counts
    if counts is not None:
        lacking = torch.arange(tokens.size(3), device=tokens.device) >= counts[:, None, :, None]
        tokens = torch.where(lacking[..., None], tokens[:, :, :, :1], tokens)  # the first stands for what lacks
    return WindowSummaries(table.keys[:, :, : table.windows], ranges_of(tokens), counts)


@torch.no_grad()
def ranges_of(keys: Tensor) -> Tensor:
    """The lowest and the highest of keys (..., w, d), feature by feature: (..., 2, d)."""
    return torch.stack([keys.amin(-2), keys.amax(-2)], -2)


def _rows_of_group(width: int) -> int:
    """Neighbouring rows of a table that are gathered together, g; windows are whole groups."""
    return math.gcd(width, LARGEST_GROUP)


@torch.no_grad()
def shares_of_windows(query: Tensor, windows: WindowSummaries, hidden: Tensor | None = None) -> Tensor:
    """What P̄ each query gives to each window, (B h, H, T, s), 2 in all, in float32 or better.

    Args:
        query: (T, B h, H, d), not scaled.
        hidden: true for windows that a query does not see, (T, s).
    """
    means, ranges, counts = windows
    hypotheses = query.size(1) // len(means)
    query = fold_beams(query, hypotheses).permute(1, 2, 0, 3)
    unseen = None if counts is None else (counts == 0)[:, None, None]
    if hidden is not None:
        unseen = hidden if unseen is None else unseen | hidden

    def shares(of_windows: Tensor) -> Tensor:
        return torch.softmax(of_windows if unseen is None else of_windows.masked_fill_(unseen, -torch.inf), 3)

    of_means = scores(query, means)
    if counts is not None:
        of_means += counts.to(of_means.dtype).log()[:, None, None]
    total = shares(of_means)
    del of_means  # of the size of all scores, as what follows
    sides = torch.cat([query.clamp(max=0), query.clamp(min=0)], 3)  # for the lowest and the highest keys
    total.add_(shares(scores(sides * 2**0.5, ranges.flatten(3))))  # divided by the root of 2 d
    return unfold_beams(total, hypotheses)


@torch.no_grad()
def worth_of_windows(
    query: Tensor,
    windows: WindowSummaries,
    block: int,
    padding: Tensor | None = None,
    past: range | None = None,
) -> Tensor:
    """What each window is worth to the queries of each block, the sum of their P̄: (B h, H, Y, s).

    Args:
        query: (T, B h, H, d), not scaled.
        padding: true for queries that do not count, (B h, T).
        past: how many windows each block sees; all others are worth -1 to it. None where it sees all.
    """
    worth, at_a_time, (means, ranges, counts) = [], -(-len(query) // block), windows
    if query.device.type == "cpu":
        scores_of_block = block * math.prod(query.shape[1:3]) * means.size(2)
        at_a_time = max(1, min(at_a_time, SCORES_AT_A_TIME // scores_of_block))
    size = at_a_time * block
    for start in range(0, len(query), size):
        hidden, seen = None, means.size(2)
        if past is not None:
            those = past[start // block : start // block + at_a_time]
            seen = those[-1]
            ends = torch.arange(those.start, those.stop, those.step, device=query.device)
            hidden = (torch.arange(seen, device=query.device) >= ends[:, None]).repeat_interleave(block, 0)
        part = WindowSummaries(means[:, :, :seen], ranges[:, :, :seen], counts)
        shares = shares_of_windows(query[start : start + size], part, hidden)
        if padding is not None:
            shares.masked_fill_(padding[:, None, start : start + size, None], 0.0)
        own = in_blocks(shares, block, 2).sum(3)
        if hidden is not None:
            own = F.pad(own.masked_fill(hidden[::block], -1.0), (0, means.size(2) - seen), value=-1.0)
        worth.append(own)
    return torch.cat(worth, 2)


@torch.no_grad()
def shares_by_tokens(query: Tensor, table: WindowTable) -> Tensor:
    """The share of full attention that each query would give to each window, (B h, H, T, s), in float32 or better.

    Args:
        query: (T, B h, H, d), not scaled.
    """
    width, windows, hypotheses = table.sizes.width, table.windows, query.size(1) // len(table.keys)
    found = scores(fold_beams(query, hypotheses).permute(1, 2, 0, 3), table.tokens().flatten(2, 3))
    if table.counts is not None:
        beyond = torch.arange(width, device=query.device) >= table.counts[..., None]
        found.masked_fill_(beyond.flatten(1)[:, None, None], -torch.inf)
    return unfold_beams(torch.softmax(found, 3).unflatten(3, (windows, width)).sum(4), hypotheses)


@torch.no_grad()
def worth_by_past(query: Tensor, table: WindowTable) -> Tensor:
    """What each window is worth to each block of queries to a source, (B h, H, Y, s): what its first query and the
    `CHOOSING` - 1 before it attend to, and what comes after that, as a translation goes on.

    Args:
        query: (T, B h, H, d), not scaled.
    """
    block, (_, batch, heads, _) = table.sizes.block, query.shape
    starts = torch.arange(0, len(query), block, device=query.device)
    places = starts[:, None] + torch.arange(1 - CHOOSING, 1, device=query.device)
    at_a_time = len(starts)
    if query.device.type == "cpu":
        at_a_time = max(1, SCORES_AT_A_TIME // (CHOOSING * batch * heads * table.keys.size(2)))
    worth = []
    for some in places.split(at_a_time):
        shares = shares_by_tokens(query.index_select(0, some.clamp(min=0).flatten()), table)
        shares = shares.unflatten(2, some.shape).masked_fill((some < 0)[:, :, None], 0.0)
        worth.append(shares.sum(3))
    return with_windows_ahead(torch.cat(worth, 2), table.sizes, table.counts)


def with_windows_ahead(worth: Tensor, sizes: Sizes, counts: Tensor | None) -> Tensor:
    """Makes windows (B h, H, Y, s) worth at least nine tenths of the best of those before them.

    Those are as many as a translation may pass from the first query of a block to its last, and one more. Windows that
    are attended to now come before those ahead of them.

    Args:
        counts: the tokens of windows, (B, s), of which empty ones are worth nothing; None where none is empty.
    """
    ahead = 1 + -(-(sizes.block - 1) // sizes.width)
    before = F.pad(worth, (ahead, -1)).unfold(3, ahead, 1).amax(4)
    worth = torch.maximum(worth, 0.9 * before)
    if counts is None:
        return worth
    empty = (counts == 0).repeat_interleave(len(worth) // len(counts), 0)
    return worth.masked_fill(empty[:, None, None], 0.0)


def ranked(worth: Tensor) -> Tensor:
    """The windows in descending order of their worth (..., s), equals from left to right: (..., s)."""
    return worth.sort(dim=-1, descending=True, stable=True).indices


def rows_of_blocks(opened: Tensor, table: WindowTable) -> BlockRows:
    """The rows that blocks attend to which open these windows, (B h, H, Y, m)."""
    width, group = table.sizes.width, _rows_of_group(table.sizes.width)
    of_means = (table.keys.size(2) - table.windows * width) // group
    of_window = torch.arange(of_means, of_means + width // group, device=opened.device)
    of_tokens = (opened[..., None] * len(of_window) + of_window).flatten(3)
    means = torch.arange(of_means, device=opened.device).expand(*opened.shape[:3], -1)
    return BlockRows(opened, torch.cat([means, of_tokens], 3), _bias_of_blocks(opened, table, of_means * group))


def _bias_of_blocks(opened: Tensor, table: WindowTable, rows_of_means: int) -> Tensor:
    """What is added to the scores of the rows that each block attends to, (B h, H, Y, L).

    It is log w for a mean, -inf for that of an opened window and for an empty one, 0 for a token, and -inf beyond a
    sentence's end.
    """
    width, windows, dtype, device = table.sizes.width, table.windows, table.keys.dtype, opened.device
    shape, missing = (*opened.shape[:3], windows), rows_of_means - windows
    if table.counts is None:
        of_means = torch.full(shape, math.log(width), dtype=dtype, device=device).scatter(3, opened, -torch.inf)
        of_means = F.pad(of_means, (0, missing), value=-torch.inf) if missing else of_means
        return F.pad(of_means, (0, opened.size(3) * width))
    counts = table.counts.repeat_interleave(len(opened) // len(table.counts), 0)[:, None, None].expand(shape)
    of_means = counts.to(dtype).log().scatter(3, opened, -torch.inf)
    beyond = torch.arange(width, device=device) >= counts.gather(3, opened)[..., None]
    of_tokens = torch.zeros_like(beyond, dtype=dtype).masked_fill(beyond, -torch.inf).flatten(3)
    return torch.cat([F.pad(of_means, (0, missing), value=-torch.inf), of_tokens], 3)


def attend_to_rows(
    query: Tensor,
    rows: BlockRows,
    block: int,
    table: WindowTable,
    dropout: float,
    need_weights: bool,
    sentences: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """What each head gives, (B h, H, T, d), and the weights over tokens if they are needed, (B h, H, T, s w).

    Args:
        query: (T, B h, H, d), not scaled.
        block: the queries that share what is opened.
        sentences: the sentence of each row of queries, (B h,); None where each of the table's has h rows.
    """
    length, batch, heads = query.shape[:3]
    if sentences is None and batch != len(table.keys):
        sentences = torch.arange(batch, device=query.device) // (batch // len(table.keys))
    group, every = _rows_of_group(table.sizes.width), table.keys.size(2)
    firsts = torch.arange(0, len(table.keys) * heads * every // group, every // group, device=query.device)
    firsts = firsts.view(-1, heads, 1, 1)
    index = rows.groups + (firsts if sentences is None else firsts.index_select(0, sentences))
    index = index.flatten(0, 1).transpose(0, 1)  # (Y, X, L / g)
    keys, values = (
        x.view(-1, group * x.size(3)).index_select(0, index.flatten()).view(*index.shape[:2], -1, x.size(3))
        for x in (table.keys, table.values)
    )
    bias = rows.bias.flatten(0, 1).transpose(0, 1).unsqueeze(2)
    blocks = in_blocks(query, block, 0).flatten(2, 3).transpose(1, 2)  # (Y, X, q, d)
    out = F.scaled_dot_product_attention(blocks, keys, values, attn_mask=bias, dropout_p=dropout)
    out = out.transpose(1, 2).flatten(0, 1)[:length].unflatten(1, (batch, heads)).permute(1, 2, 0, 3)
    if not need_weights:
        return out, None
    shares = torch.softmax(scores(blocks, keys) + bias, 3).unflatten(1, (batch, heads)).permute(1, 2, 0, 3, 4)
    width, windows, counts = table.sizes.width, table.windows, table.counts
    if counts is not None:
        counts = (counts if sentences is None else counts.index_select(0, sentences))[:, None, None, None]
    all_windows = torch.arange(windows, device=query.device).expand(*rows.opened.shape[:3], -1)
    of_means, of_tokens = shares[..., :windows], shares[..., -rows.opened.size(3) * width :]
    weights = weights_over_tokens(of_means, of_tokens, all_windows, rows.opened, windows, width, counts)
    return out, weights.flatten(2, 3)[:, :, :length]


def weights_over_tokens(
    of_means: Tensor,
    of_tokens: Tensor,
    closed: Tensor,
    opened: Tensor,
    windows: int,
    width: int,
    counts: Tensor | None = None,
) -> Tensor:
    """The weights over the tokens of all windows, (..., q, s w): those of a closed window share its weight evenly.

    Args:
        of_means, of_tokens: the shares of the means of c windows and of the tokens of m, (..., q, c) and (..., q, m w).
        closed, opened: these windows, (..., c) and (..., m).
        windows: s.
        counts: the tokens of each of the c windows, as (..., 1, c); None where every window has w.
    """
    index = torch.cat([closed, opened], -1)[..., None, :, None].expand(*of_means.shape[:-1], -1, width)
    if counts is None:
        spread = (of_means / width)[..., None].expand(*of_means.shape, width)
    else:
        within = torch.arange(width, device=counts.device) < counts[..., None]
        spread = (of_means / counts.clamp(min=1))[..., None].where(within, 0.0)
    weights = of_means.new_zeros(*of_means.shape[:-1], windows, width)
    return weights.scatter_add(-2, index, torch.cat([spread, of_tokens.unflatten(-1, (-1, width))], -2)).flatten(-2)


def attend_in_full(
    query: Tensor, table: TokenTable, dropout: float, need_weights: bool, causal: bool = False
) -> tuple[Tensor, Tensor | None]:
    """What each head gives, (B h, H, T, d), and the weights (B h, H, T, n) in float32 or better if they are needed.

    Args:
        query: (T, B h, H, d), not scaled.
        causal: whether a query sees only the tokens up to its own place; then the table has no bias.
    """
    keys, values, bias = table
    hypotheses = query.size(1) // len(keys)
    query, weights = fold_beams(query, hypotheses).permute(1, 2, 0, 3), None
    out = F.scaled_dot_product_attention(query, keys, values, attn_mask=bias, dropout_p=dropout, is_causal=causal)
    if need_weights:
        found = scores(query, keys)
        bias = torch.full_like(found[0, 0], -torch.inf).triu(1) if causal else bias
        weights = unfold_beams(torch.softmax(found if bias is None else found + bias, 3), hypotheses)
    return unfold_beams(out, hypotheses), weights


def of_chosen_group(
    results: list[tuple[Tensor, Tensor | None]], chosen: list[Tensor | None], n: int
) -> tuple[Tensor, Tensor | None]:
    """What each sentence has in the group that is chosen for it, with weights over n tokens.

    Args:
        results: of all sentences in each group, (B h, ...).
        chosen: whether a group is chosen for a sentence, (B,); None where there is one group.
    """
    out, weights = results[0]
    weights = None if weights is None else F.pad(weights, (0, n - weights.size(3)))
    for (other, other_weights), rows in zip(results[1:], chosen[1:], strict=True):
        assert rows is not None
        rows = rows.repeat_interleave(len(out) // len(rows))[:, None, None, None]
        out = torch.where(rows, other, out)
        if weights is not None and other_weights is not None:
            weights = torch.where(rows, F.pad(other_weights, (0, n - other_weights.size(3))), weights)
    return out, weights
