"""The arithmetic of two levels: blocks of queries read some tokens one by one, and all others by the means of groups.

A text is cut into windows of neighbouring tokens. A block of queries opens those that are worth most to it, and reads
their tokens one by one. For all others it reads the means of closed windows, or of clusters of similar keys: where the
tokens of a group have nearly the same key, its mean is nearly as good to a query as they are. A cluster's mean is that
of all its tokens, and weighs as much as those in closed windows.

What a window is worth to a block is the sum of the shares of attention that queries would give to it. In an encoder
these are the queries of the block, and the shares those of softmax(Q K̄ᵀ / √d + log w), for K̄ the means of windows.
Elsewhere the first query of the block and those before it choose, by their attention to all tokens.

The choice has no gradient. Keys and values are tables: the means, and then the tokens. The rows that a block attends to
are gathered in bundles of neighbours, and one call of torch's fused attention does the rest, with a bias that makes a
mean count for those tokens of its group that are in closed windows. Every query attends to G + m w rows.

Shapes: T queries, n tokens, B sentences, each with h hypotheses side by side, H heads, d features per head, s windows
of w tokens, G groups, Y blocks of q queries that open m windows, L rows of a block, X = B h H, g rows of a bundle, and
R = G' + s w rows of a table, with G' = G rounded up to whole bundles.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.beams import fold_beams, unfold_beams
from linformer_fairseq.modules.ops.blocks import in_blocks
from linformer_fairseq.modules.ops.key_clusters import Clusters
from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.ops.softmax_attention import scores, softmax_attention
from linformer_fairseq.modules.two_level.sizes import Sizes

LARGEST_BUNDLE = 32  # rows that are gathered at a time, at most: on a CPU larger bundles are no faster
CHOOSING = 8
"""Queries that choose for a block outside encoders: where the next ones will look, the last ones know best."""
CALIBRATING = 4  # queries of a block whose attention says what the closed tokens of clusters are to it
SCORES_AT_A_TIME = 1 << 20
"""About how many scores of choice and calibration are computed at a time on a CPU, whose caches hold them; a GPU
computes 64 times as many."""


class WindowTable(NamedTuple):
    """The keys and values of B sentences in two levels: the means of windows or clusters, and then all tokens."""

    sizes: Sizes
    windows: int  # s
    keys: Tensor  # (B, H, R, d)
    values: Tensor  # (B, H, R, d)
    counts: Tensor | None  # the tokens of each window, (B, s); None where every window has w
    clusters: Clusters | None = None  # None where means are those of windows

    def tokens(self) -> Tensor:
        """The keys of the tokens of each window, (B, H, s, w, d)."""
        return self.keys[:, :, -self.windows * self.sizes.width :].unflatten(2, (self.windows, -1))

    def beyond(self) -> Tensor | None:
        """True for what is beyond the end of a sentence, (B, s w); None where nothing is."""
        if self.counts is None:
            return None
        return (torch.arange(self.sizes.width, device=self.keys.device) >= self.counts[..., None]).flatten(1)

    def groups(self) -> tuple[Tensor, Tensor]:
        """The group of each token, (B, H, s w), any beyond the end, and the tokens of each group, (B, H or 1, G)."""
        width, windows, batch, heads = self.sizes.width, self.windows, *self.keys.shape[:2]
        if self.clusters is not None:
            labels = self.clusters.labels()
            return F.pad(labels, (0, windows * width - labels.size(2))), self.clusters.counts()
        labels = torch.arange(windows * width, device=self.keys.device) // width
        counts = torch.full_like(labels[:windows], width).expand(batch, -1) if self.counts is None else self.counts
        return labels.expand(batch, heads, -1), counts[:, None]


class TokenTable(NamedTuple):
    """The keys and values of B sentences that are attended to in full."""

    keys: Tensor  # (B, H, n, d)
    values: Tensor  # (B, H, n, d)
    bias: Tensor | None  # added to scores, (B, 1, 1, n): -inf for padding; None where there is none


class BlockRows(NamedTuple):
    """The rows of a table that blocks attend to: all means, and the tokens of the windows that they open."""

    opened: Tensor  # the windows that each block opens, (B h, H, Y, m)
    bundles: Tensor  # the numbers of bundles of rows within a sentence and head, (B h, H, Y, L / g)
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
    clusters, tables = None, []
    if sizes.clusters:
        clusters = Clusters.of(keys, None if counts is None else counts.sum(1), sizes.clusters)
    for x in (keys, values):
        windows = in_blocks(x, sizes.width, 0).permute(2, 3, 0, 1, 4)  # (B, H, s, w, d)
        means = means_of(windows, counts) if clusters is None else clusters.means(x).transpose(0, 1)
        tables.append(
            torch.cat([in_blocks(means, _rows_of_bundle(sizes.width), 2).flatten(2, 3), windows.flatten(2, 3)], 2)
        )
    return WindowTable(sizes, -(-len(keys) // sizes.width), tables[0], tables[1], counts, clusters)


def means_of(windows: Tensor, counts: Tensor | None) -> Tensor:
    """The means of windows (B, H, s, w, d), of which each has so many tokens, (B, s), or w: (B, H, s, d)."""
    if counts is None:
        return windows.mean(3)
    sums = windows.sum(3, dtype=at_least_float32(windows.dtype))
    return (sums / counts.clamp(min=1)[:, None, :, None]).to(windows.dtype)


def _rows_of_bundle(width: int) -> int:
    """Neighbouring rows of a table that are gathered together, g; windows are whole bundles."""
    return math.gcd(width, LARGEST_BUNDLE)


def blocks_at_a_time(scores_of_block: int, device: torch.device) -> int:
    """The blocks for which scores are made at a time, where each makes so many."""
    return max(1, (SCORES_AT_A_TIME if device.type == "cpu" else SCORES_AT_A_TIME << 6) // scores_of_block)


@torch.no_grad()
def worth_by_means(query: Tensor, table: WindowTable, padding: Tensor | None) -> Tensor:
    """What each window is worth to each block of an encoder's queries, by the means of windows: (B, H, Y, s).

    Args:
        query: (T, B, H, d), not scaled.
        padding: true for queries that do not count, (B, T).
    """
    block, windows = table.sizes.block, table.windows
    means = table.keys[:, :, :windows] if table.clusters is None else means_of(table.tokens(), table.counts)
    worth, size = [], block * blocks_at_a_time(block * math.prod(query.shape[1:3]) * windows, query.device)
    for start in range(0, len(query), size):
        some = slice(start, start + size)
        found = scores(query[some].permute(1, 2, 0, 3), means)
        if table.counts is not None:
            found += table.counts.to(found.dtype).log()[:, None, None]
        shares = torch.softmax(found, 3)
        if padding is not None:
            shares.masked_fill_(padding[:, None, some, None], 0.0)
        worth.append(in_blocks(shares, block, 2).sum(3))
    return torch.cat(worth, 2)


@torch.no_grad()
def worth_by_past(query: Tensor, table: WindowTable) -> Tensor:
    """What each window is worth to each block of queries to a source, (B h, H, Y, s): what its first query and the
    `CHOOSING` - 1 before it attend to, and what comes after that, as a translation goes on.

    Args:
        query: (T, B h, H, d), not scaled.
    """
    worth, places = [], choosing_queries(len(query), table.sizes.block, query.device)
    at_a_time = blocks_at_a_time(CHOOSING * math.prod(query.shape[1:3]) * table.keys.size(2), query.device)
    for some in places.split(at_a_time):
        shares = shares_by_tokens(query.index_select(0, some.clamp(min=0).flatten()), table)
        worth.append(shares.unflatten(2, some.shape).masked_fill((some < 0)[:, :, None], 0.0).sum(3))
    return with_windows_ahead(torch.cat(worth, 2), table.sizes, table.counts)


@torch.no_grad()
def shares_by_tokens(query: Tensor, table: WindowTable) -> Tensor:
    """The share of full attention that each query would give to each window, (B h, H, T, s), in float32 or better.

    Args:
        query: (T, B h, H, d), not scaled.
    """
    hypotheses, beyond = query.size(1) // len(table.keys), table.beyond()
    own, keys = fold_beams(query, hypotheses).permute(1, 2, 0, 3), table.tokens().flatten(2, 3)
    found = scores(own, keys)
    if beyond is not None:
        found.masked_fill_(beyond[:, None, None], -torch.inf)
    return unfold_beams(shares_of_windows(found, table.sizes.width), hypotheses)


def choosing_queries(length: int, block: int, device: torch.device) -> Tensor:
    """The queries that choose for each block of so many queries, (Y, `CHOOSING`), negative where there is none."""
    starts = torch.arange(0, length, block, device=device)
    return starts[:, None] + torch.arange(1 - CHOOSING, 1, device=device)


def shares_of_windows(found: Tensor, width: int) -> Tensor:
    """The share of full attention that goes to each window, (..., s), by the scores of tokens, (..., s w)."""
    return torch.softmax(found, -1).unflatten(-1, (-1, width)).sum(-1)


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


def rows_of_blocks(opened: Tensor, of_means: Tensor, table: WindowTable) -> BlockRows:
    """The rows that blocks attend to.

    Args:
        opened: the windows that they open, (B h, H, Y, m).
        of_means: what is added to the scores of means, (B h, H, Y, G).
    """
    width, bundle, device = table.sizes.width, _rows_of_bundle(table.sizes.width), opened.device
    means = (table.keys.size(2) - table.windows * width) // bundle  # bundles of means
    of_window = torch.arange(means, means + width // bundle, device=device)
    of_tokens = (opened[..., None] * len(of_window) + of_window).flatten(3)
    bundles = torch.cat([torch.arange(means, device=device).expand(*opened.shape[:3], -1), of_tokens], 3)
    missing = means * bundle - of_means.size(3)
    bias = F.pad(of_means, (0, missing), value=-torch.inf) if missing else of_means
    if table.counts is None:
        return BlockRows(opened, bundles, F.pad(bias, (0, opened.size(3) * width)))
    beyond = torch.arange(width, device=device) >= _of_each(table.counts, opened).gather(3, opened)[..., None]
    of_tokens = torch.zeros_like(beyond, dtype=bias.dtype).masked_fill(beyond, -torch.inf).flatten(3)
    return BlockRows(opened, bundles, torch.cat([bias, of_tokens], 3))


def bias_of_windows(opened: Tensor, table: WindowTable) -> Tensor:
    """What is added to the scores of the means of windows, (B h, H, Y, s): the logarithm of the tokens of a window, and
    -inf for one that is empty or opened."""
    if table.counts is None:
        shape = (*opened.shape[:3], table.windows)
        counted = torch.full(shape, math.log(table.sizes.width), dtype=table.keys.dtype, device=opened.device)
    else:
        counted = _of_each(table.counts.to(table.keys.dtype).log(), opened)
    return counted.scatter(3, opened, -torch.inf)


def _of_each(of_sentences: Tensor, opened: Tensor) -> Tensor:
    """What windows have in each sentence, (B, s), for each block of each hypothesis, (B h, H, Y, s)."""
    each = of_sentences.repeat_interleave(len(opened) // len(of_sentences), 0)
    return each[:, None, None].expand(*opened.shape[:3], -1)


@torch.no_grad()
def bias_of_clusters(query: Tensor, opened: Tensor, table: WindowTable, padding: Tensor | None) -> Tensor:
    """What is added to the scores of the means of clusters in an encoder, (B, H, Y, G); `calibrated` by some queries of
    each block, evenly spread.

    Args:
        query: (T, B, H, d), not scaled.
        opened: the windows that blocks open, (B, H, Y, m).
        padding: true for queries that do not count, (B, T).
    """
    assert table.clusters is not None
    (length, batch, heads, features), block, device = query.shape, table.sizes.block, query.device
    starts = torch.arange(0, length, block, device=device)
    places = starts[:, None] + torch.arange(CALIBRATING, device=device) * block // CALIBRATING  # (Y, c)
    counted, places = (places < length)[None], places.clamp(max=length - 1)
    if padding is not None:
        counted = counted & ~padding[:, places]
    tokens, within = table.clusters.tokens()  # (B, H, G, l)
    first = table.keys.size(2) - table.windows * table.sizes.width
    keys = rows_of(table.keys, first + tokens.flatten(2)).view(*tokens.shape, features)
    means, windows = table.keys[:, :, : tokens.size(2)], tokens // table.sizes.width
    at_a_time, biases = blocks_at_a_time(CALIBRATING * batch * heads * tokens[0, 0].numel(), device), []
    for some, own_opened, own in zip(
        places.split(at_a_time), opened.split(at_a_time, 2), counted.split(at_a_time, 1), strict=True
    ):
        queries = query.index_select(0, some.flatten()).permute(1, 2, 0, 3).unflatten(2, some.shape)
        is_open = torch.zeros(*own_opened.shape[:3], table.windows, dtype=torch.bool, device=device)
        hidden = of_tokens_in_groups(is_open.scatter_(3, own_opened, True), windows)
        if within is not None:
            hidden |= ~within[:, :, None]
        found = scores(queries.flatten(2, 3), keys.flatten(2, 3)).unflatten(3, keys.shape[2:4])
        biases.append(calibrated(queries, found.unflatten(2, some.shape), means, hidden, own[:, None]))
    return torch.cat(biases, 2)


def rows_of(x: Tensor, index: Tensor) -> Tensor:
    """Rows of sequences (X..., n, d) by their numbers (..., X..., c): (..., X..., c, d)."""
    sequences, n = x.shape[:-2], x.size(-2)
    firsts = torch.arange(0, n * sequences.numel(), n, device=x.device).view(*sequences, 1)
    return x.flatten(0, -2).index_select(0, (index + firsts).flatten()).view(*index.shape, x.size(-1))


def of_tokens_in_groups(of_windows: Tensor, windows: Tensor) -> Tensor:
    """What blocks have of each window, (..., Y, s), for each token of groups, (..., Y, G, l), whose windows are
    (..., G, l)."""
    index = windows.flatten(-2)[..., None, :].expand(*of_windows.shape[:-1], -1)
    return of_windows.gather(-1, index).unflatten(-1, windows.shape[-2:])


def calibrated(queries: Tensor, found: Tensor, means: Tensor, hidden: Tensor, counted: Tensor) -> Tensor:
    """What is added to the scores of the mean keys of groups, (..., Y, G), so that a mean gets what those of its
    group's tokens get that it stands for: the mean over some queries of log Σ exp(q kᵀ / √d) - q k̄ᵀ / √d.

    By Jensen's inequality that is at least the logarithm of their number, where these are all tokens of the group; with
    that alone, other tokens would get too much. It is -inf where there are none.

    Args:
        queries: some for each block, (..., Y, c, d), not scaled.
        found: their scores of the tokens of groups, (..., Y, c, G, l), which are overwritten.
        means: the mean keys, (..., G, d).
        hidden: true for tokens that do not count, (..., Y, G, l).
        counted: true for queries that count, as (..., Y, c).
    """
    of_tokens = found.masked_fill_(hidden[..., None, :, :], -torch.inf).logsumexp(-1)  # (..., Y, c, G)
    of_tokens -= scores(queries.flatten(-3, -2), means).unflatten(-2, queries.shape[-3:-1])
    counted = counted[..., None]
    bias = of_tokens.where(counted, 0.0).sum(-2) / counted.sum(-2).clamp(min=1)
    return bias.clamp(max=torch.finfo(means.dtype).max).to(means.dtype)


def attend_to_rows(
    query: Tensor, rows: BlockRows, table: WindowTable, dropout: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """What each head gives, (B h, H, T, d), and the weights over tokens if they are needed, (B h, H, T, s w).

    Args:
        query: (T, B h, H, d), not scaled.
    """
    length, batch, heads = query.shape[:3]
    keys, values = gathered(rows, table)
    bias = rows.bias.flatten(0, 1).transpose(0, 1).unsqueeze(2)
    blocks = in_blocks(query, table.sizes.block, 0).flatten(2, 3).transpose(1, 2)  # (Y, X, q, d)
    out = F.scaled_dot_product_attention(blocks, keys, values, attn_mask=bias, dropout_p=dropout)
    out = out.transpose(1, 2).flatten(0, 1)[:length].unflatten(1, (batch, heads)).permute(1, 2, 0, 3)
    if not need_weights:
        return out, None
    shares = torch.softmax(scores(blocks, keys) + bias, 3).unflatten(1, (batch, heads)).permute(1, 2, 0, 3, 4)
    return out, weights_of_rows(shares, rows.opened, table).flatten(2, 3)[:, :, :length]


def gathered(rows: BlockRows, table: WindowTable) -> tuple[Tensor, Tensor]:
    """The keys and the values of these rows, (Y, X, L, d) each."""
    (batch, heads), bundle, every = rows.bundles.shape[:2], _rows_of_bundle(table.sizes.width), table.keys.size(2)
    firsts = torch.arange(0, len(table.keys) * heads * every // bundle, every // bundle, device=rows.bundles.device)
    firsts = firsts.view(-1, heads, 1, 1).repeat_interleave(batch // len(table.keys), 0)
    index = (rows.bundles + firsts).flatten(0, 1).transpose(0, 1).contiguous()  # (Y, X, L / g)
    keys, values = (
        x.view(-1, bundle * x.size(3)).index_select(0, index.flatten()).view(*index.shape[:2], -1, x.size(3))
        for x in (table.keys, table.values)
    )
    return keys, values


def weights_of_rows(shares: Tensor, opened: Tensor, table: WindowTable) -> Tensor:
    """The weights over tokens, (B h, H, Y, q, s w).

    Args:
        shares: of the rows that blocks attend to, (B h, H, Y, q, L).
        opened: the windows that they open, (B h, H, Y, m).
    """
    hypotheses, beyond = len(shares) // len(table.keys), table.beyond()
    labels, counts = (x.repeat_interleave(hypotheses, 0)[:, :, None] for x in table.groups())
    weights = weights_over_tokens(shares, labels, counts, opened, table.sizes.width)
    if beyond is not None:
        weights.masked_fill_(beyond.repeat_interleave(hypotheses, 0)[:, None, None, None], 0.0)
    return weights


def weights_over_tokens(shares: Tensor, labels: Tensor, counts: Tensor, opened: Tensor, width: int) -> Tensor:
    """The weights over the tokens of all windows, (..., q, s w): the tokens of a group share what its mean gets evenly,
    and those of opened windows have their own beside that.

    Args:
        shares: of the means of groups, of what is padding for them, and of the tokens of m windows, (..., q, L).
        labels: the group of each token, (..., s w).
        counts: the tokens of each group, (..., G).
        opened: the windows, (..., m).
    """
    each = shares[..., : counts.size(-1)] / counts.clamp(min=1)[..., None, :]
    weights = each.gather(-1, labels[..., None, :].expand(*each.shape[:-1], -1))
    tokens = (opened[..., None] * width + torch.arange(width, device=opened.device)).flatten(-2)
    tokens = tokens[..., None, :].expand(*each.shape[:-1], -1)
    return weights.scatter_add(-1, tokens, shares[..., -tokens.size(-1) :])


def attend_in_full(
    query: Tensor, table: TokenTable, dropout: float, need_weights: bool, causal: bool = False
) -> tuple[Tensor, Tensor | None]:
    """What each head gives, (B h, H, T, d), and the weights (B h, H, T, n) in float32 or better if they are needed.

    Args:
        query: (T, B h, H, d), not scaled.
        causal: whether a query sees only the tokens up to its own place; then the table has no bias.
    """
    hypotheses = query.size(1) // len(table.keys)
    query = fold_beams(query, hypotheses).permute(1, 2, 0, 3)
    out, weights = softmax_attention(query, *table, dropout, need_weights, causal)
    return unfold_beams(out, hypotheses), None if weights is None else unfold_beams(weights, hypotheses)


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
