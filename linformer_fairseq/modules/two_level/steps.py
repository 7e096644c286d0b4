"""The steps of a search in two levels, and what they keep between one and the next.

Shapes: T queries, B sentences, each with h hypotheses side by side, H heads, d features per head, s windows, w tokens
of a window, and in causal attention P blocks of q tokens that there is room for, of U hypotheses, with c groups each.
"""

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
    WindowTable,
    attend_in_full,
    attend_to_rows,
    bias_of_windows,
    of_chosen_group,
    ranked,
    rows_of,
    rows_of_blocks,
    shares_by_tokens,
    weights_over_tokens,
    with_windows_ahead,
)
from linformer_fairseq.modules.two_level.groups import choose, in_text, labels_of, tokens_of_groups
from linformer_fairseq.modules.two_level.sizes import Sizes

FIRST_TOKENS = 128  # whose blocks there is room for at first, about; room doubles where it does not suffice


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
            opened = ranked(with_windows_ahead(worth, table.sizes, table.counts))[..., : table.sizes.opened]
            rows = rows_of_blocks(opened, bias_of_windows(opened, table), table)
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


class BlockStore(NamedTuple):
    """Whole blocks of hypotheses."""

    keys: Tensor  # (P, U, H, q, d)
    values: Tensor  # (P, U, H, q, d)
    mean_keys: Tensor  # those of groups, (P, U, H, c, d)
    mean_values: Tensor  # (P, U, H, c, d)
    tokens: Tensor  # the tokens of groups, as places in the block, (P, U, H, c, l)

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, sizes: Sizes) -> "BlockStore":
        """The blocks of these keys and values, (..., q, d)."""
        tokens = tokens_of_groups(keys, sizes)
        mean_keys, mean_values = (
            rows_of(x, tokens.flatten(-2)).view(*tokens.shape, -1).mean(-2) for x in (keys, values)
        )
        return cls(keys, values, mean_keys, mean_values, tokens.contiguous())

    def with_block(self, whole: int, keys: Tensor, values: Tensor, sizes: Sizes) -> "BlockStore":
        """Writes one more block, (B, H, q, d), after so many; what lacks room is copied to where there is twice as
        much."""
        room, places = self.keys.shape[:2]
        more = (0, max(0, len(keys) - places), 0, room if whole == room else 0)
        stores = BlockStore(*(F.pad(x, (0, 0) * (x.dim() - 2) + more) for x in self)) if any(more) else self
        for store, x in zip(stores, BlockStore.of(keys, values, sizes), strict=True):
            store[whole, : len(keys)] = x
        return stores


@dataclass(frozen=True)
class TargetState:
    """What causal attention keeps of the tokens so far.

    Whole blocks are written once, with the means of their groups, and never copied again: hypotheses that change places
    take the places of their blocks with them, not the blocks. What every hypothesis has for itself are the last tokens,
    which do not fill a block yet, the last queries, and what the block opens.

    It may be copied and reordered, but only one copy may go on: all of them write to the same store.
    """

    sizes: Sizes
    exact: int  # how many first tokens get full attention
    position: int  # the number of tokens
    store: BlockStore
    places: Tensor  # where each hypothesis finds each of its blocks among the U places, (B, P)
    last_keys: Tensor  # of the tokens after the whole blocks, (B, H, less than q, d)
    last_values: Tensor
    queries: Tensor  # the last ones, (up to `CHOOSING`, B, H, d)
    opened: Tensor  # the windows that the block opens which the last token is in, (B, H, m + 1)
    bias: Tensor  # what is added to the scores of groups in that block, (B, H, P c)

    @classmethod
    def begin(cls, query: Tensor, key: Tensor, value: Tensor, sizes: Sizes, exact: int) -> "TargetState":
        """Begins with these tokens, (T, B, H, d) each, of which there may be none."""
        length, batch, heads, _ = query.shape
        whole = length // sizes.block
        start, room = whole * sizes.block, max(-(-FIRST_TOKENS // sizes.block), whole)

        def stored(x: Tensor) -> Tensor:
            blocks = x[:start].unflatten(0, (-1, sizes.block)).permute(0, 2, 3, 1, 4)
            return torch.cat([blocks, blocks.new_zeros(room - whole, *blocks.shape[1:])])

        last_keys, last_values = (x[start:].permute(1, 2, 0, 3) for x in (key, value))
        places = torch.arange(batch, device=query.device)[:, None].expand(-1, room)
        store, none = BlockStore.of(stored(key), stored(value), sizes), places.new_zeros(batch, heads, 0)
        last = query[max(0, length - CHOOSING) :]
        search = cls(sizes, exact, length, store, places, last_keys, last_values, last, none, none.to(query.dtype))
        if start < exact or length == start:
            return search
        return search._with_opened_windows(query[max(0, start + 1 - CHOOSING) : start + 1])

    def reordered(self, order: Tensor) -> "TargetState":
        """Keeps some hypotheses, in their new order."""
        names = ("places", "last_keys", "last_values", "opened", "bias")
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
        exact, whole, width = self.position < self.exact, self.position // self.sizes.block, self.sizes.width
        search = replace(self, queries=torch.cat([self.queries[max(0, len(self.queries) + 1 - CHOOSING) :], query]))
        if not exact and self.position % self.sizes.block == 0:
            search = search._with_opened_windows(search.queries)
        keys, values = (
            torch.cat([last, x.permute(1, 2, 0, 3)], 2)
            for last, x in ((self.last_keys, key), (self.last_values, value))
        )
        store, opened = search.store, search.opened
        parts = [(keys, values)]  # kept apart, as to put them together would copy them
        if not exact:
            parts.insert(0, search._windows(opened, store.keys, store.values))
            parts.insert(0, search._blocks(whole, store.mean_keys, store.mean_values))
        elif whole:
            parts.insert(0, search._blocks(whole, store.keys, store.values))
        one = query.permute(1, 2, 0, 3)
        found = [scores(one, k) for k, _ in parts]
        if not exact:
            found[0] += search.bias[:, :, None]
        shares = torch.softmax(torch.cat(found, 3), 3)
        dropped = F.dropout(shares, dropout).to(query.dtype).split([v.size(2) for _, v in parts], 3)
        out = sum((part @ v for part, (_, v) in zip(dropped, parts, strict=True)), start=query.new_zeros(()))
        weights = shares if need_weights else None
        if need_weights and not exact:
            of_past, of_last = shares.split([shares.size(3) - keys.size(2), keys.size(2)], 3)
            of_past = weights_over_tokens(of_past, *labels_of(search._tokens(whole)), opened, width)
            weights = torch.cat([of_past, of_last], 3)
        search = replace(search, position=self.position + 1)
        return out, weights, search._with_last_tokens(keys, values, whole)

    def _with_opened_windows(self, queries: Tensor) -> "TargetState":
        """The search in a block that begins after whole blocks, with its first query and those before it,
        (up to `CHOOSING`, B, H, d)."""
        whole, sizes = self.position // self.sizes.block, self.sizes
        keys, means = self._blocks(whole, self.store.keys, self.store.mean_keys)
        tokens = self._tokens(whole)
        grouped = rows_of(keys, tokens.flatten(2)).view(*tokens.shape, -1)
        start = torch.full((1,), whole * sizes.block, device=keys.device)
        every = torch.ones(1, len(queries), dtype=torch.bool, device=keys.device)
        own = queries.permute(1, 2, 0, 3).unsqueeze(2)
        opened, bias = choose(own, keys, grouped, means, tokens, sizes, start, every)
        return replace(self, opened=opened.squeeze(2), bias=bias.squeeze(2))

    def _tokens(self, whole: int) -> Tensor:
        """The tokens of the groups of so many first blocks, as places in the text, (B, H, P c, l)."""
        return in_text(self._gathered(self._every(whole), 1, self.store.tokens)[0], self.sizes)

    def _blocks(self, whole: int, one: Tensor, other: Tensor) -> tuple[Tensor, Tensor]:
        """Rows of so many first blocks, (B, H, P q or P c, d), of what the store has, (P, U, H, q or c, d)."""
        x, y = self._gathered(self._every(whole), 1, one, other)
        return x.flatten(2, 3), y.flatten(2, 3)

    def _windows(self, windows: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens of windows (B, H, m), (B, H, m w, d)."""
        k, v = self._gathered(windows, self.sizes.block // self.sizes.width, keys, values)
        return k.flatten(2, 3), v.flatten(2, 3)

    def _every(self, whole: int) -> Tensor:
        """The numbers of so many first blocks for every hypothesis and head, (B, H, P)."""
        blocks = torch.arange(whole, device=self.places.device)
        return blocks.expand(len(self.places), self.store.keys.size(2), -1)

    def _gathered(self, index: Tensor, parts: int, *stores: Tensor) -> list[Tensor]:
        """What each store holds of some blocks, or of some of the equal parts of blocks, of every hypothesis.

        Args:
            index: the numbers of blocks or parts, (B, H, c).
            parts: of each block.
            stores: (P, U, H, q, ...).

        Returns:
            (B, H, c, q / parts, ...) for each.
        """
        _, most, heads = stores[0].shape[:3]
        blocks = index // parts
        own = self.places[:, None].expand(-1, heads, -1).gather(2, blocks)
        rows = (blocks * most + own) * heads + torch.arange(heads, device=index.device)[:, None]
        rows = (rows * parts + index % parts).flatten()
        views = [x.unflatten(3, (parts, -1)).flatten(0, 3) for x in stores]
        return [x.flatten(1).index_select(0, rows).view(*index.shape, *x.shape[1:]) for x in views]

    def _with_last_tokens(self, keys: Tensor, values: Tensor, whole: int) -> "TargetState":
        """The search with these last tokens after so many whole blocks, (B, H, up to q, d), which fill one or not."""
        if keys.size(2) < self.sizes.block:
            return replace(self, last_keys=keys, last_values=values)
        store = self.store.with_block(whole, keys, values, self.sizes)
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
