"""The steps of a search for causal two-level attention, and what they keep of the tokens so far.

Whole windows are written once, with their means and ranges, and never copied again: hypotheses that change places take
the places of their windows with them, not the windows. What every hypothesis has for itself are the last tokens, which
do not fill a window yet, the queries of its last block, and the choice of that block.

Shapes: B hypotheses, P places of hypotheses, W windows that there is room for, H heads, d features per head, w tokens
of a window.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.causal_two_level import shares_over_tokens
from linformer_fairseq.modules.ops.precision import scores
from linformer_fairseq.modules.ops.thresholds import thresholds
from linformer_fairseq.modules.ops.two_level import LevelSizes, Summaries, ranges_of, ranked, shares_of_windows

FIRST_TOKENS = 128
"""Tokens whose windows there is room for at first, about; room doubles where it does not suffice."""


@dataclass(frozen=True)
class History:
    """The tokens so far.

    It may be copied and reordered, but only one copy may go on: all of them write to the same room.
    """

    sizes: LevelSizes
    exact: int
    """How many first tokens get full attention."""
    position: int
    """The number of tokens."""
    keys: Tensor
    """Those of whole windows, (W, P, H, w, d)."""
    values: Tensor
    mean_keys: Tensor
    """(W, P, H, d)."""
    mean_values: Tensor
    key_ranges: Tensor
    """The lowest and the highest keys of windows, (W, P, H, 2, d)."""
    places: Tensor
    """Where each hypothesis finds each of its windows among the P places, (B, W)."""
    last_keys: Tensor
    """Those of the tokens after the whole windows, (B, H, less than w, d)."""
    last_values: Tensor
    queries: Tensor
    """Those of the block that the last token is in, (up to q, B, H, d)."""
    ranked: Tensor
    """The windows that are past for this block, those worth most first, (B, H, s)."""

    def reordered(self, order: Tensor) -> "History":
        """The history of the hypotheses that stay, in their new order."""
        places, keys, values, ranked = (
            x.index_select(0, order) for x in (self.places, self.last_keys, self.last_values, self.ranked)
        )
        queries = self.queries.index_select(1, order)
        return replace(self, places=places, last_keys=keys, last_values=values, queries=queries, ranked=ranked)

    @property
    def whole(self) -> int:
        """The number of whole windows."""
        return self.position // self.sizes.width


def history_of(query: Tensor, key: Tensor, value: Tensor, sizes: LevelSizes, exact: int) -> History:
    """The history of these tokens, (T, B, H, d) each, of which there may be none."""
    length, batch, heads, _ = query.shape
    width, block = sizes.width, sizes.block
    whole = length // width
    room = max(-(-FIRST_TOKENS // width), whole)
    keys, mean_keys, last_keys = _stored(key, width, room)
    values, mean_values, last_values = _stored(value, width, room)
    places = torch.arange(batch, device=query.device)[:, None].expand(-1, room)
    start = max(0, length - 1) // block * block  # of the block that the last token is in
    ranked = places.new_zeros(batch, heads, 0)
    history = History(
        sizes=sizes,
        exact=exact,
        position=length,
        keys=keys,
        values=values,
        mean_keys=mean_keys,
        mean_values=mean_values,
        key_ranges=ranges_of(keys),
        places=places,
        last_keys=last_keys,
        last_values=last_values,
        queries=query[start:],
        ranked=ranked,
    )
    if start < exact or length % block == 0:
        return history
    return replace(history, ranked=_rank(history, query[start - block + 1 : start + 1], start // width - 1))


def _stored(x: Tensor, width: int, room: int) -> tuple[Tensor, Tensor, Tensor]:
    """The whole windows of keys or values `x` (T, B, H, d), with room for some, their means, and the tokens after."""
    end = len(x) // width * width
    windows = x[:end].unflatten(0, (-1, width)).permute(0, 2, 3, 1, 4)
    kept = x.new_zeros(room, *windows.shape[1:])
    kept[: len(windows)] = windows
    return kept, kept.mean(3), x[end:].permute(1, 2, 0, 3)


def step(
    history: History, query: Tensor, key: Tensor, value: Tensor, dropout: float, need_weights: bool
) -> tuple[Tensor, Tensor | None, History]:
    """The output (1, B, H, d) for one more token, the weights over all tokens so far if they are needed, (B, H, 1, n),
    and the history with that token.

    Args:
        query, key, value: (1, B, H, d), the queries not scaled.
        dropout: the share of probabilities that are dropped.
    """
    sizes, position, ranked, opened = history.sizes, history.position, history.ranked, history.sizes.opened
    begins = position % sizes.block == 0
    queries = torch.cat([history.queries, query])
    past = position // sizes.block * sizes.block // sizes.width - 1  # windows that the block sees in two levels
    if position < history.exact:
        past = opened = 0
    elif begins:
        ranked = _rank(history, queries[-sizes.block :], past)
    near = torch.arange(past, history.whole, device=query.device).expand(*query.shape[1:3], -1)
    seen = _Seen(
        history.places,
        torch.cat([ranked[..., :opened], near], 2),
        ranked[..., opened:past],
        *(
            torch.cat([last, x.permute(1, 2, 0, 3)], 2)
            for last, x in ((history.last_keys, key), (history.last_values, value))
        ),
    )
    one = query.permute(1, 2, 0, 3)
    at_once = seen.portion(sizes.width)
    parts = [
        _attend(history, part, _Seen(*these), dropout, need_weights)
        for part, *these in zip(one.split(at_once), *(x.split(at_once) for x in seen), strict=True)
    ]
    out = torch.cat([out for out, _ in parts])
    weights = torch.cat([x for _, x in parts if x is not None]) if need_weights else None
    history = replace(history, queries=query if begins else queries, ranked=ranked)
    return out.permute(2, 0, 1, 3), weights, _with_token(history, seen.last_keys, seen.last_values)


class _Seen(NamedTuple):
    """What the newest token of each hypothesis attends to."""

    places: Tensor
    """Where it finds its windows, (B, W)."""
    near: Tensor
    """The windows of which it sees the tokens, (B, H, l)."""
    closed: Tensor
    """The windows of which it sees the means, (B, H, c)."""
    last_keys: Tensor
    """Those of the tokens after the whole windows, itself included, (B, H, up to w, d)."""
    last_values: Tensor

    def portion(self, width: int) -> int:
        """How many hypotheses are computed at a time."""
        _, heads, windows = self.near.shape
        numbers = heads * (windows * width + self.closed.size(2)) * self.last_keys.size(3)
        most = thresholds(self.near.device).gathered
        return max(1, len(self.near) if most is None else most // max(1, numbers))


def _attend(
    history: History, query: Tensor, seen: _Seen, dropout: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """The output (B, H, 1, d), and the weights over all tokens if they are needed, for some hypotheses."""
    width = history.sizes.width
    parts = [(seen.last_keys, seen.last_values, 0.0)]  # kept apart, as to put them together would copy them
    if seen.near.size(2):
        k, v = (x.flatten(2, 3) for x in _gather(seen.places, seen.near, history.keys, history.values))
        parts.insert(0, (k, v, 0.0))
    if seen.closed.size(2):
        k, v = _gather(seen.places, seen.closed, history.mean_keys, history.mean_values)
        parts.insert(0, (k, v, math.log(width)))
    shares = torch.softmax(torch.cat([scores(query, k) + bias for k, _, bias in parts], 3), 3)
    dropped = F.dropout(shares, dropout).to(query.dtype).split([v.size(2) for _, v, _ in parts], 3)
    out = sum((part @ v for part, (_, v, _) in zip(dropped, parts, strict=True)), start=query.new_zeros(()))
    if not need_weights:
        return out, None
    last = seen.last_keys.size(2)  # at least the token itself
    weights = shares_over_tokens(shares[..., :-last], seen.closed, seen.near, history.whole, width)
    return out, torch.cat([weights, shares[..., -last:]], 3)


def _rank(history: History, queries: Tensor, past: int) -> Tensor:
    """The windows that are past when a block begins, (B, H, s), by its first query and the q - 1 before it,
    (q, B, H, d)."""
    every = torch.arange(past, device=queries.device).expand(*queries.shape[1:3], -1)
    means, ranges = _gather(history.places, every, history.mean_keys, history.key_ranges)
    return ranked(shares_of_windows(queries, Summaries(means, ranges, None)).sum(2))


def _gather(places: Tensor, windows: Tensor, *stores: Tensor) -> list[Tensor]:
    """What each store (W, P, H, ...) holds for some windows (B, H, c) of the hypotheses with these places, each
    (B, H, c, ...)."""
    _, most, heads = stores[0].shape[:3]
    own = places[:, None].expand(-1, heads, -1).gather(2, windows)
    index = (windows * most + own) * heads + torch.arange(heads, device=places.device)[:, None]
    rows = index.flatten()
    return [x.flatten(0, 2).flatten(1).index_select(0, rows).view(*index.shape, *x.shape[3:]) for x in stores]


def _with_token(history: History, last_keys: Tensor, last_values: Tensor) -> History:
    """The history with these last tokens, one more than before, which fill a window or not."""
    hypotheses, position = len(last_keys), history.position + 1
    if last_keys.size(2) < history.sizes.width:
        return replace(history, position=position, last_keys=last_keys, last_values=last_values)
    whole, (room, places) = history.whole, history.keys.shape[:2]
    more = (0, max(0, hypotheses - places), 0, room if whole == room else 0)  # of places and of windows
    kept = []
    for name, x in (
        ("keys", last_keys),
        ("values", last_values),
        ("mean_keys", last_keys.mean(2)),
        ("mean_values", last_values.mean(2)),
        ("key_ranges", ranges_of(last_keys)),
    ):
        store = getattr(history, name)
        if any(more):
            store = F.pad(store, (0, 0) * (store.dim() - 2) + more)
        store[whole, :hypotheses] = x
        kept.append(store)
    own = F.pad(history.places, more[2:])
    own[:, whole] = torch.arange(hypotheses, device=own.device)
    keys, values, mean_keys, mean_values, key_ranges = kept
    return replace(
        history,
        position=position,
        keys=keys,
        values=values,
        mean_keys=mean_keys,
        mean_values=mean_values,
        key_ranges=key_ranges,
        places=own,
        last_keys=last_keys[:, :, :0],
        last_values=last_values[:, :, :0],
    )
