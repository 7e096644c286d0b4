"""Causal two-level attention: to the last tokens one by one, and to all before them in two levels.

A block of q queries, from token t on, attends to its own tokens causally, to the window before it, and to the windows
that end before that one in two levels (`linformer_fairseq.modules.ops.two_level`). A window enters only when all its
tokens are past, so that its mean knows nothing of what comes:

    out = softmax([Q K̄ᵀ / √d + log w, Q K_oᵀ / √d]) [V̄; V_o]    o: tokens of the m opened windows, of the window
                                                                    before, and of the block up to the query

A block opens what its first query and the q - 1 before it attend to most, judged as there. The first tokens get full
attention, at least so many that every later block has m windows to open.

The means of closed windows are gathered in the order of their worth, and those of windows that are not yet past come
last: what is hidden is then the same for all heads and sentences. Blocks may be computed in portions, so that early
ones do not carry the columns of late ones.

Shapes: T queries and tokens, B the batch, H heads, d features per head, X = B H, Y blocks, s windows, c closed ones.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.precision import scores
from linformer_fairseq.modules.ops.thresholds import thresholds
from linformer_fairseq.modules.ops.two_level import LevelSizes, Summaries, ranges_of, ranked, shares_of_windows


def exact_tokens(sizes: LevelSizes, exact_below: int) -> int:
    """How many first tokens get full attention, whole blocks: every later block has m windows to open."""
    least = max(exact_below, (sizes.opened + 1) * sizes.width)
    return -(-least // sizes.block) * sizes.block


def causal_two_level_attention(
    query: Tensor, key: Tensor, value: Tensor, sizes: LevelSizes, exact: int, dropout: float
) -> Tensor:
    """The output (T, B, H, d).

    Args:
        query, key, value: (T, B, H, d), the queries not scaled.
        sizes: q is a multiple of w.
        exact: how many first tokens get full attention, by `exact_tokens`.
        dropout: the share of probabilities that are dropped.
    """
    q, k, v = (x[:exact].permute(1, 2, 0, 3) for x in (query, key, value))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout).permute(2, 0, 1, 3)
    if len(query) <= exact:
        return out
    portions = _Portions(query.flatten(1, 2), key.flatten(1, 2), value.flatten(1, 2), sizes, exact)
    later = torch.cat([portions.attend(begin, dropout) for begin in portions.begins])
    return torch.cat([out, later[: len(query) - exact].unflatten(1, query.shape[1:3])])


def causal_two_level_weights(query: Tensor, key: Tensor, sizes: LevelSizes, exact: int) -> Tensor:
    """The weights over tokens, (B, H, T, T), in float32 or better: those of a closed window share its weight evenly."""
    length, heads = len(query), query.shape[1:3]
    first = scores(*(x[:exact].permute(1, 2, 0, 3) for x in (query, key)))
    future = torch.ones_like(first[0, 0], dtype=torch.bool).triu(1)
    weights = F.pad(torch.softmax(first.masked_fill(future, -torch.inf), 3), (0, length - first.size(3)))
    if length <= exact:
        return weights
    portions = _Portions(query.flatten(1, 2), key.flatten(1, 2), key.flatten(1, 2), sizes, exact)
    later = torch.cat([portions.weights(begin) for begin in portions.begins], 1)[:, : length - exact, :length]
    return torch.cat([weights, later.unflatten(0, heads)], 2)


class _Portions:
    """The blocks after the first tokens, with what all portions of them share."""

    def __init__(self, query: Tensor, key: Tensor, value: Tensor, sizes: LevelSizes, exact: int) -> None:
        width, block, device = sizes.width, sizes.block, query.device
        missing = -len(query) % block
        if missing:
            query, key, value = (F.pad(x, (0, 0, 0, 0, 0, missing)) for x in (query, key, value))
        self.sizes, self.exact = sizes, exact
        self.queries = query[exact:].unflatten(0, (-1, block)).transpose(1, 2)  # (Y, X, q, d)
        starts = range(exact, len(query), block)
        self.blocks, self.windows = len(starts), len(key) // width
        self.past = _past(starts, width, device)
        most = starts[-1] // width - 1
        windows = [x.unflatten(0, (-1, width)) for x in (key, value)]
        means = [x[:most].mean(1) for x in windows]
        choosing = query[exact - block + 1 : len(query) - block + 1]
        self.ranked = _rank(choosing, means[0], ranges_of(windows[0][:most].transpose(1, 2)), starts, width)
        near = self.past[:, None] + torch.arange(1 + block // width, device=device)
        near = near[:, None].expand(-1, self.ranked.size(1), -1)
        self.near = torch.cat([self.ranked[..., : sizes.opened], near], 2)  # windows of tokens, (Y, X, m + ...)
        self.of_means = [x.movedim(-2, 0).contiguous() for x in means]
        self.tokens = [_gather(x.movedim(-2, 0), self.near).flatten(2, 3).split(self._size) for x in windows]

    @property
    def begins(self) -> range:
        """The first block of each portion."""
        return range(0, self.blocks, self._size)

    @property
    def _size(self) -> int:
        return -(-self.blocks // thresholds(self.queries.device).portions)

    def _blocks(self, begin: int) -> tuple[slice, Tensor]:
        """The blocks of a portion, and the closed windows of each, (Y, X, c); some may not be past."""
        these, sizes = slice(begin, min(begin + self._size, self.blocks)), self.sizes
        past_last = (self.exact + (these.stop - 1) * sizes.block) // sizes.width - 1
        return these, self.ranked[these, :, sizes.opened : past_last]

    def _rows(self, these: slice, closed: Tensor, of: int) -> Tensor:
        """The keys (`of` 0) or values (1) that blocks attend to, (Y, X, L, d)."""
        return torch.cat([_gather(self.of_means[of], closed), self.tokens[of][these.start // self._size]], 2)

    def _biases(self, these: slice, closed: Tensor) -> Tensor:
        """What is added to scores, (Y, 1, q, L): 0 for tokens, and -inf for what is not past."""
        device, dtype, block, columns = closed.device, self.queries.dtype, self.sizes.block, closed.size(2)
        ahead = torch.arange(columns, device=device) >= (self.past[these] - self.sizes.opened)[:, None]
        means = torch.full_like(ahead, math.log(self.sizes.width), dtype=dtype).masked_fill(ahead, -torch.inf)
        future = torch.ones(block, block, dtype=torch.bool, device=device).triu(1)
        own = torch.zeros(block, block, dtype=dtype, device=device).masked_fill(future, -torch.inf)
        tokens = F.pad(own, (self.near.size(2) * self.sizes.width - block, 0))
        rows = (len(ahead), block)
        return torch.cat([means[:, None].expand(*rows, -1), tokens.expand(*rows, -1)], 2)[:, None]

    def attend(self, begin: int, dropout: float) -> Tensor:
        """The output of a portion, (Y q, X, d)."""
        these, closed = self._blocks(begin)
        keys, values = self._rows(these, closed, 0), self._rows(these, closed, 1)
        mask = self._biases(these, closed)
        out = F.scaled_dot_product_attention(self.queries[these], keys, values, attn_mask=mask, dropout_p=dropout)
        return out.transpose(1, 2).flatten(0, 1)

    def weights(self, begin: int) -> Tensor:
        """The weights over tokens of a portion, (X, Y q, s w)."""
        these, closed = self._blocks(begin)
        query, keys = self.queries[these], self._rows(these, closed, 0)
        shares = torch.softmax(scores(query, keys) + self._biases(these, closed), 3)
        weights = shares_over_tokens(shares, closed, self.near[these], self.windows, self.sizes.width)
        return weights.transpose(0, 1).flatten(1, 2)


def _past(starts: range, width: int, device: torch.device) -> Tensor:
    """The windows that blocks which begin at these tokens see in two levels, (Y,)."""
    return torch.arange(starts.start, starts.stop, starts.step, device=device) // width - 1


@torch.no_grad()
def _rank(query: Tensor, means: Tensor, ranges: Tensor, starts: range, width: int) -> Tensor:
    """Each block's windows, those worth most to its first query and to the q - 1 before it first, then those that are
    not past: (Y, X, s).

    Args:
        query: those that choose, q for each block, (Y q, X, d).
        means: the mean keys of windows, (s, X, d).
        ranges: their lowest and their highest keys, (s, X, 2, d).
        starts: the first token of each block.
        width: tokens of a window, w.
    """
    query, block = query.unsqueeze(2), starts.step  # of one head
    means, ranges = (x.transpose(0, 1).unsqueeze(1) for x in (means, ranges))
    worth, size = [], Summaries(means, ranges, None).blocks_at_a_time(block)
    for begin in range(0, len(starts), size):
        these = starts[begin : begin + size]
        seen = these[-1] // width - 1
        ahead = torch.arange(seen, device=query.device) >= _past(these, width, query.device)[:, None]
        choosing, hidden = query[begin * block : (begin + size) * block], ahead.repeat_interleave(block, 0)
        shares = shares_of_windows(choosing, Summaries(means[:, :, :seen], ranges[:, :, :seen], None), hidden)
        of_seen = shares.squeeze(1).unflatten(1, (-1, block)).sum(2).masked_fill(ahead, -1.0)  # (X, Y, seen)
        worth.append(F.pad(of_seen, (0, means.size(2) - seen), value=-1.0))
    return ranked(torch.cat(worth, 1)).transpose(0, 1)


def _gather(x: Tensor, index: Tensor) -> Tensor:
    """Rows (s, ...) of each sequence, (X, s, ...), by their numbers (Y, X, L): (Y, X, L, ...)."""
    firsts = torch.arange(0, x.size(0) * x.size(1), x.size(1), device=x.device)
    rows = x.flatten(0, 1).flatten(1).index_select(0, (index + firsts[:, None]).flatten())
    return rows.view(*index.shape, *x.shape[2:])


def shares_over_tokens(shares: Tensor, closed: Tensor, near: Tensor, windows: int, width: int) -> Tensor:
    """The shares of means and tokens, (..., q, L), as weights over tokens, (..., q, s w).

    Args:
        closed: the windows of the means, (..., c).
        near: the windows of the tokens, (..., l), with c + l w = L.
        windows: s.
    """
    queries, columns = shares.size(-2), closed.size(-1)
    index = torch.cat([closed, near], -1)[..., None, :, None].expand(*shares.shape[:-1], -1, width)
    of_closed = (shares[..., :columns, None] / width).expand(*shares.shape[:-1], columns, width)
    of_near = shares[..., columns:].unflatten(-1, (-1, width))
    weights = shares.new_zeros(*shares.shape[:-2], queries, windows, width)
    return weights.scatter_add(-2, index, torch.cat([of_closed, of_near], -2)).flatten(-2)
