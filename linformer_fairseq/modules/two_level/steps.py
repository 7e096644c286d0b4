"""The steps of a search in two levels, and what they keep between one and the next.

Shapes: T queries, B sentences, each with h hypotheses side by side, H heads, d features per head, s windows, w tokens
of a window, and in causal attention W windows that there is room for, of P hypotheses.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import kept_sentences, scores
from linformer_fairseq.modules.ops.padding import Places
from linformer_fairseq.modules.two_level.arithmetic import (
    CHOOSING,
    BlockRows,
    TokenTable,
    WindowSummaries,
    WindowTable,
    attend_in_full,
    attend_to_rows,
    of_chosen_group,
    ranges_of,
    ranked,
    rows_of_blocks,
    shares_by_tokens,
    shares_of_windows,
    weights_over_tokens,
    with_windows_ahead,
)
from linformer_fairseq.modules.two_level.sizes import Sizes

FIRST_TOKENS = 128  # whose windows there is room for at first, about; room doubles where it does not suffice


class SharedRows(NamedTuple):
    """Which hypotheses have become copies of one another since each had a row, and share one of U rows now.

    Whatever their rows hold is read once for all of them, with the query of each as one of several of its row.
    """

    rows: Tensor  # the row of each hypothesis, (B h,)
    slots: Tensor  # of each hypothesis among `most` times U, (B h,): the first of every row, then the second ones
    number: int  # U
    most: int  # the hypotheses of a row, at most

    def folded(self, query: Tensor) -> Tensor:
        """The queries of each row, (1, B h, ...) to (most, U, ...); zeros where a row has fewer."""
        places = query.new_zeros(self.most * self.number, *query.shape[2:])
        return places.index_copy_(0, self.slots, query[0]).unflatten(0, (self.most, self.number))

    def unfolded(self, x: Tensor) -> Tensor:
        """What is of each hypothesis in what rows have for all of theirs, (U, H, most, ...) to (B h, H, 1, ...)."""
        return x.movedim(2, 0).flatten(0, 1).index_select(0, self.slots).unsqueeze(2)

    def sentences(self, hypotheses: int) -> Tensor:
        """The sentence of each row, (U,), where each has h hypotheses."""
        every = torch.arange(len(self.rows), device=self.rows.device) // hypotheses
        return self.rows.new_zeros(self.number).scatter_(0, self.rows, every)


def shared_rows(rows: Tensor) -> tuple[Tensor, SharedRows]:
    """The rows that are still needed, (U,), and who shares them. This waits for the device.

    Args:
        rows: of each hypothesis, (B h,).
    """
    kept, rows, counts = rows.unique(return_inverse=True, return_counts=True)
    before = (rows[:, None] == torch.arange(len(kept), device=rows.device)).cumsum(0).gather(1, rows[:, None])
    slots = (before.squeeze(1) - 1) * len(kept) + rows
    return kept, SharedRows(rows, slots, len(kept), int(counts.max()))


class GroupState(NamedTuple):
    """What a search keeps to attend with the sizes that some of the sentences ask for."""

    table: TokenTable | WindowTable  # of all sentences
    chosen: Tensor | None  # whether a sentence asks for these sizes, (B,); None where all do
    queries: Tensor | None = None  # the last ones, (up to `CHOOSING`, B h, H, d); None in full attention
    rows: BlockRows | None = None  # what this block attends to, (U, ...) where rows are shared
    shared: SharedRows | None = None  # None while every hypothesis has a row of its own

    def attend(
        self, query: Tensor, position: int, dropout: float, need_weights: bool
    ) -> tuple[Tensor, Tensor | None, "GroupState"]:
        """What each head gives for the next query (1, B h, H, d), (B h, H, 1, d), the weights if they are needed, and
        the search with that query, which opens windows where it begins a block."""
        table, _, queries, rows, shared = self
        if isinstance(table, TokenTable):
            return *attend_in_full(query, table, dropout, need_weights), self
        queries = query if queries is None else torch.cat([queries[1 - CHOOSING :], query])
        if rows is None or position % table.sizes.block == 0:
            worth = shares_by_tokens(queries, table).sum(2, keepdim=True)
            worth = with_windows_ahead(worth, table.sizes, table.counts)
            rows = rows_of_blocks(ranked(worth)[..., : table.sizes.opened], table)
            shared = None
        search = self._replace(queries=queries, rows=rows, shared=shared)
        if shared is None:
            return *attend_to_rows(query, rows, 1, table, dropout, need_weights), search
        sentences, folded = shared.sentences(query.size(1) // len(table.keys)), shared.folded(query)
        out, weights = attend_to_rows(folded, rows, shared.most, table, dropout, need_weights, sentences)
        return shared.unfolded(out), None if weights is None else shared.unfolded(weights), search

    def reordered(self, order: Tensor, sentences: Tensor | None) -> "GroupState":
        """Keeps some hypotheses, in their new order.

        Copies of one hypothesis share its rows from now on, so that what they open is read once for all of them; on a
        GPU, which would have to be waited for, each keeps a copy.

        Args:
            sentences: those that stay; None where all do.
        """
        table, chosen, queries, rows, shared = self
        if sentences is not None:
            chosen = None if chosen is None else chosen.index_select(0, sentences)
            tensors = {name: x for name, x in table._asdict().items() if isinstance(x, Tensor)}
            kept: dict[str, Any] = {name: x.index_select(0, sentences) for name, x in tensors.items()}
            table = table._replace(**kept)
        if queries is not None and rows is not None:
            queries = queries.index_select(1, order)
            if finds_copies(order.device):
                order, shared = shared_rows(order if shared is None else shared.rows.index_select(0, order))
            rows = BlockRows(*(x.index_select(0, order) for x in rows))
        return GroupState(table, chosen, queries, rows, shared)


def finds_copies(device: torch.device) -> bool:
    """Whether a search looks for copies of a hypothesis, for which a GPU would have to be waited for."""
    return device.type == "cpu"


class SourceState(NamedTuple):
    """What cross-attention keeps of its sources, and of the queries so far."""

    groups: tuple[GroupState, ...]  # one for each of the sizes that the sentences ask for
    places: Places  # of the weights
    hypotheses: int  # h
    position: int = 0  # the number of queries so far

    def attend(
        self, tokens: tuple[Tensor, ...], dropout: float, need_weights: bool
    ) -> tuple[Tensor, Tensor | None, "SourceState"]:
        """What each head gives for one more query of each hypothesis, (B h, H, 1, d), the weights over tokens if they
        are needed, (B h, H, 1, n), and the search with that query.

        Args:
            tokens: the query, (1, B h, H, d), not scaled.
        """
        (query,) = tokens
        results = [group.attend(query, self.position, dropout, need_weights) for group in self.groups]
        chosen, groups = [group.chosen for group in self.groups], tuple(group for _, _, group in results)
        out, weights = of_chosen_group([x[:2] for x in results], chosen, self.places.tokens)
        if weights is not None:
            weights = in_source_order(weights, self.places, query.size(1) // self.hypotheses)
        return out, weights, self._replace(groups=groups, position=self.position + 1)

    def reordered(self, order: Tensor) -> "SourceState":
        """Keeps some hypotheses, in their new order; those of a sentence stay side by side, or go together."""
        sentences, places = None, self.places
        if len(order) != len(self.groups[0].table.keys) * self.hypotheses:
            sentences = kept_sentences(order, self.hypotheses)
            places = places.rows(sentences)
        return self._replace(groups=tuple(x.reordered(order, sentences) for x in self.groups), places=places)


def in_source_order(weights: Tensor, places: Places, sentences: int) -> Tensor:
    """Moves weights (B h, H, T, n) to the tokens as they came, for so many sentences."""
    rows = torch.arange(len(weights), device=weights.device) // (len(weights) // sentences)
    return places.rows(rows).in_source_order(weights)


class WindowStore(NamedTuple):
    """Whole windows of hypotheses."""

    keys: Tensor  # (W, P, H, w, d)
    values: Tensor  # (W, P, H, w, d)
    mean_keys: Tensor  # (W, P, H, d)
    mean_values: Tensor  # (W, P, H, d)
    ranges: Tensor  # the lowest and the highest keys, (W, P, H, 2, d)

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "WindowStore":
        """The windows of these keys and values, (..., w, d)."""
        return cls(keys, values, keys.mean(-2), values.mean(-2), ranges_of(keys))

    def with_window(self, whole: int, keys: Tensor, values: Tensor) -> "WindowStore":
        """Writes one more window, (B, H, w, d), after so many; what lacks room is copied to where there is twice as
        much."""
        room, places = self.keys.shape[:2]
        more = (0, max(0, len(keys) - places), 0, room if whole == room else 0)
        stores = WindowStore(*(F.pad(x, (0, 0) * (x.dim() - 2) + more) for x in self)) if any(more) else self
        for store, x in zip(stores, WindowStore.of(keys, values), strict=True):
            store[whole, : len(keys)] = x
        return stores


@dataclass(frozen=True)
class TargetState:
    """What causal attention keeps of the tokens so far.

    Whole windows are written once, with their means and ranges, and never copied again: hypotheses that change places
    take the places of their windows with them, not the windows. What every hypothesis has for itself are the last
    tokens, which do not fill a window yet, the queries of its last block, and what that block opens.

    It may be copied and reordered, but only one copy may go on: all of them write to the same store.
    """

    sizes: Sizes
    exact: int  # how many first tokens get full attention
    position: int  # the number of tokens
    store: WindowStore
    places: Tensor  # where each hypothesis finds each of its windows among the P places, (B, W)
    last_keys: Tensor  # of the tokens after the whole windows, (B, H, less than w, d)
    last_values: Tensor
    queries: Tensor  # of the block that the last token is in, (up to q, B, H, d)
    ranked: Tensor  # the windows that are past for this block, those worth most first, (B, H, s)

    @classmethod
    def begin(cls, query: Tensor, key: Tensor, value: Tensor, sizes: Sizes, exact: int) -> "TargetState":
        """Begins with these tokens, (T, B, H, d) each, of which there may be none."""
        length, batch, heads, _ = query.shape
        width, block = sizes.width, sizes.block
        whole = length // width
        room = max(-(-FIRST_TOKENS // width), whole)

        def stored(x: Tensor) -> Tensor:
            windows = x[: whole * width].unflatten(0, (-1, width)).permute(0, 2, 3, 1, 4)
            return torch.cat([windows, windows.new_zeros(room - whole, *windows.shape[1:])])

        last_keys, last_values = (x[whole * width :].permute(1, 2, 0, 3) for x in (key, value))
        places = torch.arange(batch, device=query.device)[:, None].expand(-1, room)
        start = max(0, length - 1) // block * block  # of the block that the last token is in
        store, none = WindowStore.of(stored(key), stored(value)), places.new_zeros(batch, heads, 0)
        search = cls(sizes, exact, length, store, places, last_keys, last_values, query[start:], none)
        if start < exact or length % block == 0:
            return search
        return replace(search, ranked=search._ranked(query[start - block + 1 : start + 1], start // width - 1))

    def reordered(self, order: Tensor) -> "TargetState":
        """Keeps some hypotheses, in their new order."""
        names = ("places", "last_keys", "last_values", "ranked")
        rows: dict[str, Any] = {name: getattr(self, name).index_select(0, order) for name in names}
        return replace(self, queries=self.queries.index_select(1, order), **rows)

    def attend(
        self, tokens: tuple[Tensor, ...], dropout: float, need_weights: bool
    ) -> tuple[Tensor, Tensor | None, "TargetState"]:
        """What each head gives for one more token, (B, H, 1, d), the weights over all tokens so far if they are needed,
        (B, H, 1, n), and the search with that token.

        Args:
            tokens: its query, not scaled, its key and its value, (1, B, H, d).
        """
        query, key, value = tokens
        width, position, best, opened = self.sizes.width, self.position, self.ranked, self.sizes.opened
        whole, begins = position // width, position % self.sizes.block == 0
        queries = torch.cat([self.queries, query])
        past = position // self.sizes.block * self.sizes.block // width - 1  # what the block sees in two levels
        if position < self.exact:
            past = opened = 0
        elif begins:
            best = self._ranked(queries[-self.sizes.block :], past)
        near = torch.arange(past, whole, device=query.device).expand(*query.shape[1:3], -1)
        near, closed = torch.cat([best[..., :opened], near], 2), best[..., opened:past]
        keys, values = (
            torch.cat([last, x.permute(1, 2, 0, 3)], 2)
            for last, x in ((self.last_keys, key), (self.last_values, value))
        )
        parts = [(keys, values, 0.0)]  # kept apart, as to put them together would copy them
        if near.size(2):
            k, v = (x.flatten(2, 3) for x in self._gathered(near, self.store.keys, self.store.values))
            parts.insert(0, (k, v, 0.0))
        if closed.size(2):
            k, v = self._gathered(closed, self.store.mean_keys, self.store.mean_values)
            parts.insert(0, (k, v, math.log(width)))
        one = query.permute(1, 2, 0, 3)
        shares = torch.softmax(torch.cat([scores(one, k) + bias for k, _, bias in parts], 3), 3)
        dropped = F.dropout(shares, dropout).to(query.dtype).split([v.size(2) for _, v, _ in parts], 3)
        out = sum((part @ v for part, (_, v, _) in zip(dropped, parts, strict=True)), start=query.new_zeros(()))
        weights = None
        if need_weights:
            last = keys.size(2)  # at least the token itself
            of_closed, of_near, of_last = shares.split([closed.size(2), near.size(2) * width, last], 3)
            of_windows = weights_over_tokens(of_closed, of_near, closed, near, whole, width)
            weights = torch.cat([of_windows, of_last], 3)
        search = replace(self, position=position + 1, queries=query if begins else queries, ranked=best)
        return out, weights, search._with_last_tokens(keys, values, whole)

    def _ranked(self, queries: Tensor, past: int) -> Tensor:
        """The windows that are past when a block begins, (B, H, s), by its first query and the q - 1 before it,
        (q, B, H, d)."""
        every = torch.arange(past, device=queries.device).expand(*queries.shape[1:3], -1)
        means, ranges = self._gathered(every, self.store.mean_keys, self.store.ranges)
        return ranked(shares_of_windows(queries, WindowSummaries(means, ranges, None)).sum(2))

    def _gathered(self, windows: Tensor, *stores: Tensor) -> list[Tensor]:
        """What each store holds of some windows of every hypothesis, (B, H, c), each (B, H, c, ...)."""
        _, most, heads = stores[0].shape[:3]
        own = self.places[:, None].expand(-1, heads, -1).gather(2, windows)
        index = (windows * most + own) * heads + torch.arange(heads, device=windows.device)[:, None]
        rows = index.flatten()
        return [x.flatten(0, 2).flatten(1).index_select(0, rows).view(*index.shape, *x.shape[3:]) for x in stores]

    def _with_last_tokens(self, keys: Tensor, values: Tensor, whole: int) -> "TargetState":
        """The search with these last tokens after so many whole windows, (B, H, up to w, d), which fill one or not."""
        if keys.size(2) < self.sizes.width:
            return replace(self, last_keys=keys, last_values=values)
        store = self.store.with_window(whole, keys, values)
        places = F.pad(self.places, (0, len(store.keys) - self.places.size(1)))
        places[:, whole] = torch.arange(len(keys), device=places.device)
        return replace(self, store=store, places=places, last_keys=keys[:, :, :0], last_values=values[:, :, :0])


SearchT = TypeVar("SearchT", SourceState, TargetState)


def attend_in_steps(
    search: SearchT, tokens: tuple[Tensor, ...], dropout: float, need_weights: bool
) -> tuple[Tensor, Tensor | None, SearchT]:
    """What each head gives for some more tokens, (B h, H, T, d), the weights over n tokens if they are needed,
    (B h, H, T, n), and the search with these tokens.

    Args:
        tokens: what the search takes of each, (T, B h, H, d).
        dropout: the share of probabilities that are dropped.
    """
    outs, weights = [], []
    for token in zip(*(x.split(1) for x in tokens), strict=True):
        out, own_weights, search = search.attend(token, dropout, need_weights)
        outs.append(out)
        if own_weights is not None:
            weights.append(own_weights)
    if len(outs) > 1:
        outs = [torch.cat(outs, 2)]
        weights = [torch.cat([F.pad(x, (0, weights[-1].size(3) - x.size(3))) for x in weights], 2)] if weights else []
    return outs[0], weights[0] if weights else None, search
