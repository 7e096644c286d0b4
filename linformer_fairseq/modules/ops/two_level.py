"""Two-level attention: to the tokens of some windows one by one, and to the means of all others, in one softmax.

A text is cut into windows of w neighbouring tokens. To a query a window stands for its tokens by their mean, hence the
log w. Blocks of q neighbouring queries open the same m windows, and attend to their tokens instead:

    S̄ = Q K̄ᵀ / √d + log w         scores of the windows that stay closed
    S = Q Kᵀ / √d                  scores of the tokens in opened windows
    out = softmax([S̄, S]) [V̄; V]

A block opens the windows that are worth most, by the sum over queries of the shares P̄ that they would give to windows.
In an encoder these are all its own queries; in a decoder, as many up to its first one, all of them known when the block
begins, as a later query would tell an earlier one what comes. As a translation moves on through its source, the windows
that follow are worth something in cross-attention, too. The choice has no gradient.

A query often asks for one token, which a mean hides among the others of its window. So P̄ is the sum of the shares by
means and of those that follow from the largest score that a window's tokens can have, given its lowest and its highest
key, feature by feature (Tang et al., 2024):

    P̄ = softmax(Q K̄ᵀ / √d + log w) + softmax((min(Q, 0) K_minᵀ + max(Q, 0) K_maxᵀ) / √d)

Keys and values are tables: the means of all windows, and then the tokens. The rows that a block attends to are gathered
in groups of neighbours, and one call of torch's fused attention does the rest, with a bias that hides the means of
opened windows: nothing is sorted but the windows of a block, and autograd keeps the gathered rows, the output and a
number per query. Every query attends to s + m w rows.

Where no window has more than one token, or all are opened, this is full attention.

Shapes: T queries, n tokens, B the batch, H heads, d features per head, s windows, Y blocks, L rows of a block, and
R = s' + s w rows of a table, with s' = s rounded up to whole groups.
"""

import math
import sys
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.precision import at_least_float32, scores
from linformer_fairseq.modules.ops.thresholds import thresholds

LARGEST_GROUP = 32
"""Rows that are gathered at a time, at most: on a CPU larger groups are no faster."""


class LevelSizes(NamedTuple):
    """How a text is seen in two levels."""

    width: int
    """Tokens of a window, w."""
    opened: int
    """Windows that a block opens, m."""
    block: int
    """Queries of a block, q."""

    @property
    def group(self) -> int:
        """Neighbouring rows of a table that are gathered together; windows are whole groups."""
        return math.gcd(self.width, LARGEST_GROUP)

    @property
    def ahead(self) -> int:
        """Windows that a translation may pass from the first query of a block to its last, about."""
        return -(-(self.block - 1) // self.width)

    def windows(self, n: int) -> int:
        """The number of windows of n tokens, s; the last may have fewer than w."""
        return -(-n // self.width)


def window_sizes(lengths: Tensor, windows: int, width: int) -> Tensor:
    """The tokens of each window of sentences with these lengths (B,), at least one a sentence: (B, s)."""
    starts = torch.arange(0, windows * width, width, device=lengths.device)
    return (lengths.clamp(min=1)[:, None] - starts).clamp(0, width)


def token_table(x: Tensor, sizes: LevelSizes, tokens: Tensor | None) -> Tensor:
    """The table (B, H, R, d) of `x` (n, B, H, d).

    Args:
        tokens: those of each window (B, s), beyond which `x` is zero; None where every window has w.
    """
    windows = _by_blocks(x, sizes.width, 0)  # (s, w, B, H, d)
    if tokens is None:
        means = windows.mean(1)
    else:
        means = windows.sum(1, dtype=at_least_float32(x.dtype)) / tokens.t().clamp(min=1)[:, :, None, None]
    means = _by_blocks(means.to(x.dtype), sizes.group, 0).flatten(0, 1)
    return torch.cat([means.permute(1, 2, 0, 3), windows.flatten(0, 1).permute(1, 2, 0, 3)], 2)


@torch.no_grad()
def ranges_of_windows(table: Tensor, width: int, windows: int, tokens: Tensor | None) -> Tensor:
    """The lowest and the highest key of each window, feature by feature: (B, H, s, 2, d).

    Args:
        table: of keys, (B, H, R, d).
        tokens: those of each window (B, s); None where every window has w.
    """
    keys = table[:, :, -windows * width :].unflatten(2, (windows, width))
    if tokens is not None:
        lacking = torch.arange(width, device=keys.device) >= tokens[:, None, :, None]
        keys = torch.where(lacking[..., None], keys[:, :, :, :1], keys)  # their first stands for those they lack
    return ranges_of(keys)


@torch.no_grad()
def ranges_of(keys: Tensor) -> Tensor:
    """The lowest and the highest of keys (..., w, d), feature by feature: (..., 2, d)."""
    return torch.stack([keys.amin(-2), keys.amax(-2)], -2)


class Summaries(NamedTuple):
    """What is known of windows when blocks choose among them."""

    means: Tensor
    """Their mean keys, (B, H, s, d)."""
    ranges: Tensor
    """Their lowest and their highest keys, (B, H, s, 2, d)."""
    tokens: Tensor | None
    """The tokens of each, (B, s); None where all have the same number."""

    def blocks_at_a_time(self, block: int) -> int:
        """For how many blocks of q queries the windows are judged at a time.

        On a CPU, for so few that their scores stay in its caches.
        """
        most, (sentences, heads, windows, _) = thresholds(self.means.device).scored, self.means.shape
        scores_of_block = max(1, sentences * heads * windows * block)
        return sys.maxsize // block if most is None else max(1, most // scores_of_block)


@torch.no_grad()
def shares_of_windows(query: Tensor, windows: Summaries, hidden: Tensor | None = None) -> Tensor:
    """What P̄ each query gives to each window, (B, H, T, s), 2 in all, in float32 or better.

    Args:
        query: (T, B, H, d), not scaled.
        hidden: true for windows that a query does not see, (T, s).
    """
    means, ranges, tokens = windows
    query = query.permute(1, 2, 0, 3)
    unseen = None if tokens is None else (tokens == 0)[:, None, None]
    if hidden is not None:
        unseen = hidden if unseen is None else unseen | hidden

    def shares(of_windows: Tensor) -> Tensor:
        return torch.softmax(of_windows if unseen is None else of_windows.masked_fill_(unseen, -torch.inf), 3)

    of_means = scores(query, means)
    if tokens is not None:
        of_means += tokens.to(of_means.dtype).log()[:, None, None]
    total = shares(of_means)
    del of_means  # of the size of all scores, as what follows
    sides = torch.cat([query.clamp(max=0), query.clamp(min=0)], 3)  # for the lowest and the highest keys
    return total.add_(shares(scores(sides * 2**0.5, ranges.flatten(3))))  # divided by the root of 2 d


@torch.no_grad()
def worth_to_own_queries(
    query: Tensor, windows: Summaries, block: int, padding: Tensor | None = None, begin: int = 0
) -> Tensor:
    """What each window is worth to the queries of each block, the sum of their P̄: (B, H, Y, s).

    Args:
        query: (T, B, H, d), not scaled.
        padding: true for queries that do not count, (B, T).
        begin: the first query that counts, one of the first block.
    """
    size, worth = block * windows.blocks_at_a_time(block), []
    for start in range(0, len(query), size):
        shares = shares_of_windows(query[start : start + size], windows)
        if padding is not None:
            shares.masked_fill_(padding[:, None, start : start + size, None], 0.0)
        if begin and not start:
            shares[:, :, :begin] = 0.0
        worth.append(_by_blocks(shares, block, 2).sum(3))
    return torch.cat(worth, 2)


@torch.no_grad()
def worth_to_past_queries(query: Tensor, windows: Summaries, block: int) -> Tensor:
    """What each window is worth to the first query of each block and to the q - 1 before it, likewise: (B, H, Y, s)."""
    before, end = block - 1, -(-len(query) // block) * block
    choosing = F.pad(query, (0, 0, 0, 0, 0, 0, before, 0))[:end]
    return worth_to_own_queries(choosing, windows, block, begin=before)


def ranked(worth: Tensor, ahead: int = 0, tokens: Tensor | None = None) -> Tensor:
    """The windows, those that are worth most first, and of those worth the same the first: (..., s), like `worth`.

    Args:
        worth: what each window is worth; with `ahead`, (B, H, Y, s).
        ahead: windows that a translation may pass in a block: half of what the best of so many before a window are
            worth counts for it, too.
        tokens: those of each window (B, s); None where none is empty.
    """
    if ahead:
        before = F.pad(worth, (ahead, -1)).unfold(3, ahead, 1).amax(4)
        worth = torch.add(worth, before, alpha=0.5)
        if tokens is not None:
            worth = worth.masked_fill((tokens == 0)[:, None, None], 0.0)
    return worth.sort(dim=-1, descending=True, stable=True).indices


def _by_blocks(x: Tensor, block: int, dim: int) -> Tensor:
    """Cuts a dimension into blocks, the last one filled with zeros."""
    missing = -x.size(dim) % block
    if missing:
        x = F.pad(x, (0, 0) * (x.dim() - 1 - dim) + (0, missing))
    return x.unflatten(dim, (-1, block))


class Choice(NamedTuple):
    """Which rows of its table each block attends to: means of all windows, and the tokens of those that it opens."""

    opened: Tensor
    """The windows that it opens, (B, H, Y, m)."""
    groups: Tensor
    """Groups of g rows, (B, H, Y, L / g)."""
    biases: Tensor
    """Added to scores, (B, H, Y, L)."""

    def reordered(self, order: Tensor) -> "Choice":
        """The same for other sentences or hypotheses, each as it is now in its place of `order`."""
        return Choice(*(x.index_select(0, order) for x in self))


class Opened(NamedTuple):
    """What every block attends to."""

    keys: Tensor
    """(Y, B H, L, d)."""
    values: Tensor
    """(Y, B H, L, d)."""
    biases: Tensor
    """Added to scores, (Y, B H, 1, L)."""


def choice_of(opened: Tensor, sizes: LevelSizes, windows: int, tokens: Tensor | None, dtype: torch.dtype) -> Choice:
    """The choice of blocks that open some windows.

    Args:
        opened: these windows, (B h, H, Y, m) for h hypotheses of every sentence.
        windows: their number, s.
        tokens: those of each window, (B, s) or (B h, s); None where every window has w.
        dtype: of keys.
    """
    of_means = -(-windows // sizes.group)
    of_window = torch.arange(of_means, of_means + sizes.width // sizes.group, device=opened.device)
    of_tokens = (opened[..., None] * len(of_window) + of_window).flatten(3)
    means = torch.arange(of_means, device=opened.device).expand(*opened.shape[:3], -1)
    return Choice(opened, torch.cat([means, of_tokens], 3), _biases(opened, sizes, windows, tokens, dtype))


def open_windows(keys: Tensor, values: Tensor, choice: Choice, group: int, chosen_for: Tensor | None = None) -> Opened:
    """Gathers what each block attends to.

    Args:
        keys, values: tables, (B, H, R, d).
        choice: of B h hypotheses, h for each sentence, unless `chosen_for` says otherwise.
        group: rows of a group, g.
        chosen_for: the sentence of each row of the choice.
    """
    sentences, heads, rows, features = keys.shape
    firsts = torch.arange(0, sentences * heads * rows // group, rows // group, device=keys.device)
    firsts = firsts.view(sentences, heads, 1, 1)
    firsts = _for_hypotheses(firsts, len(choice.groups)) if chosen_for is None else firsts.index_select(0, chosen_for)
    index = (choice.groups + firsts).flatten(0, 1).transpose(0, 1)
    shape, index = (*index.shape[:2], -1, features), index.flatten()
    return Opened(
        keys.view(-1, group * features).index_select(0, index).view(shape),
        values.view(-1, group * features).index_select(0, index).view(shape),
        choice.biases.flatten(0, 1).transpose(0, 1).unsqueeze(2),
    )


def _biases(opened: Tensor, sizes: LevelSizes, windows: int, tokens: Tensor | None, dtype: torch.dtype) -> Tensor:
    """What is added to the scores of the rows that each block attends to, (B h, H, Y, L).

    It is log w for a mean, -inf for that of an opened window and for an empty one, 0 for a token, and -inf beyond a
    sentence's end.
    """
    shape, padding, opened_rows = (*opened.shape[:3], windows), -windows % sizes.group, opened.size(3) * sizes.width
    if tokens is None:
        of_means = torch.full(shape, math.log(sizes.width), dtype=dtype, device=opened.device).scatter(
            3, opened, -torch.inf
        )
        return F.pad(F.pad(of_means, (0, padding), value=-torch.inf) if padding else of_means, (0, opened_rows))
    tokens = _for_hypotheses(tokens, opened.size(0))[:, None, None].expand(shape)
    of_means = tokens.to(dtype).log().scatter(3, opened, -torch.inf)
    places = torch.arange(sizes.width, device=opened.device)
    beyond = places >= tokens.gather(3, opened)[..., None]
    of_tokens = torch.zeros_like(beyond, dtype=dtype).masked_fill(beyond, -torch.inf).flatten(3)
    return torch.cat([F.pad(of_means, (0, padding), value=-torch.inf), of_tokens], 3)


def _for_hypotheses(x: Tensor, hypotheses: int) -> Tensor:
    """Repeats the rows of sentences, (B, ...), for all their hypotheses, (B h, ...)."""
    return x if len(x) == hypotheses else x.repeat_interleave(hypotheses // len(x), 0)


def attend_by_blocks(query: Tensor, source: Opened, block: int, dropout: float) -> Tensor:
    """The output (B, H, T, d) for queries (T, B, H, d), not scaled."""
    length, batch, heads = query.shape[:3]
    out = F.scaled_dot_product_attention(
        _blocks_of(query, block), source.keys, source.values, attn_mask=source.biases, dropout_p=dropout
    )
    return out.transpose(1, 2).flatten(0, 1)[:length].unflatten(1, (batch, heads)).permute(1, 2, 0, 3)


def _blocks_of(query: Tensor, block: int) -> Tensor:
    """The queries (T, B, H, d) of every block, (Y, B H, q, d)."""
    return _by_blocks(query, block, 0).flatten(2, 3).transpose(1, 2)


def weights_by_blocks(
    query: Tensor, source: Opened, opened: Tensor, block: int, width: int, windows: int, tokens: Tensor | None
) -> Tensor:
    """The weights over tokens, (B, H, T, s w), in float32 or better: those of a closed window share its weight evenly.

    Args:
        query: (T, B, H, d), not scaled.
        opened, windows, tokens: as for `choice_of`.
    """
    length, batch, heads = query.shape[:3]
    shares = torch.softmax(scores(_blocks_of(query, block), source.keys) + source.biases, 3)
    shares = shares.unflatten(1, (batch, heads)).permute(1, 2, 0, 3, 4)  # (B, H, Y, q, L)
    of_windows, of_tokens = shares[..., :windows, None], shares[..., -opened.size(3) * width :]
    index = opened[:, :, :, None, :, None].expand(*shares.shape[:4], -1, width)
    if tokens is None:
        weights = (of_windows / width).expand(*of_windows.shape[:5], width)
    else:
        tokens = _for_hypotheses(tokens, batch)[:, None, None, None, :, None]
        places = torch.arange(width, device=query.device)
        weights = (of_windows / tokens.clamp(min=1)).where(places < tokens, 0.0)
    weights = weights.scatter_add(4, index, of_tokens.unflatten(4, (-1, width)))
    return weights.flatten(4).flatten(2, 3)[:, :, :length]
