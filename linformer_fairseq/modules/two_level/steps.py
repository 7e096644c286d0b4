"""The steps of a search in two levels, and what they keep between one and the next.

Shapes: T queries, B sentences, each with h hypotheses side by side, H heads, d features per head, s windows, w tokens
of a window, G groups, L rows that a hypothesis reads, and U hypotheses that have such rows for themselves and their
copies. In causal attention there are B hypotheses, P whole blocks of q tokens, with c groups of l tokens each, and R
places for the blocks of hypotheses, the most that there have been.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.beams import kept_sentences
from linformer_fairseq.modules.ops.padding import Places
from linformer_fairseq.modules.ops.past_tokens import PastTokens
from linformer_fairseq.modules.ops.softmax_attention import scores, softmax_attention
from linformer_fairseq.modules.two_level.arithmetic import (
    CHOOSING,
    TokenTable,
    WindowTable,
    attend_in_full,
    bias_of_windows,
    gathered,
    of_chosen_group,
    ranked,
    rows_of_blocks,
    shares_by_tokens,
    weights_of_rows,
    weights_over_tokens,
    with_windows_ahead,
)
from linformer_fairseq.modules.two_level.groups import choose, in_text, labels_of, means_of_groups, tokens_of_groups
from linformer_fairseq.modules.two_level.sizes import Sizes


class Copies(NamedTuple):
    """Which hypotheses have become copies of one another since rows were gathered for each, and share them now.

    Rows are read once for all copies, with the query of each as one of several.
    """

    rows: Tensor  # which of U each hypothesis shares, (B,)
    slots: Tensor  # of each hypothesis among `most` times U, (B,): the first of each of U, then the second ones
    number: int  # U
    most: int  # the copies of one hypothesis, at most

    @classmethod
    def of(cls, rows: Tensor) -> tuple[Tensor, "Copies"]:
        """Those of U that are still needed, and who shares them. This waits for the device.

        Args:
            rows: which of U each hypothesis takes, (B,).
        """
        kept, rows, counts = rows.unique(return_inverse=True, return_counts=True)
        before = (rows[:, None] == torch.arange(len(kept), device=rows.device)).cumsum(0).gather(1, rows[:, None])
        slots = (before.squeeze(1) - 1) * len(kept) + rows
        return kept, cls(rows, slots, len(kept), int(counts.max()) if len(counts) else 0)

    def folded(self, x: Tensor) -> Tensor:
        """What each hypothesis has, (B, H, 1, ...), with that of its copies: (U, H, most, ...); zeros where there are
        fewer."""
        places = x.new_zeros(self.most * self.number, x.size(1), *x.shape[3:]).index_copy_(0, self.slots, x.squeeze(2))
        return places.unflatten(0, (self.most, self.number)).movedim(0, 2)

    def unfolded(self, x: Tensor) -> Tensor:
        """Undoes `folded`."""
        return x.movedim(2, 0).flatten(0, 1).index_select(0, self.slots).unsqueeze(2)


class Reading(NamedTuple):
    """What hypotheses read as long as they stay in a block, gathered once: means, and the tokens of opened windows."""

    keys: Tensor  # (U, H, L, d)
    values: Tensor  # (U, H, L, d)
    bias: Tensor  # added to scores, (U, H, L)
    opened: Tensor  # the windows that are opened, (U, H, m)
    copies: Copies | None = None  # None while there are rows for every hypothesis

    def attend(self, query: Tensor, dropout: float, need_weights: bool) -> tuple[Tensor, Tensor | None]:
        """What each head gives for a query of each hypothesis, (B, H, 1, d), and the shares of rows if they are needed,
        (B, H, 1, L)."""
        bias = self.bias[:, :, None]
        out, shares = softmax_attention(self._folded(query), self.keys, self.values, bias, dropout, need_weights)
        return self._unfolded(out), None if shares is None else self._unfolded(shares)

    def scores(self, query: Tensor) -> Tensor:
        """The scores of rows, (B, H, 1, L), for a query of each hypothesis, (B, H, 1, d), not scaled."""
        return self._unfolded(scores(self._folded(query), self.keys).add_(self.bias[:, :, None]))

    def mixed(self, shares: Tensor) -> Tensor:
        """The values of rows in these shares, (B, H, 1, L) to (B, H, 1, d)."""
        return self._unfolded(self._folded(shares) @ self.values)

    def reordered(self, order: Tensor) -> "Reading":
        """Keeps some hypotheses, in their new order.

        Copies of one hypothesis share its rows from now on; on a GPU, which would have to be waited for, each has rows
        of its own.
        """
        if not finds_copies(order.device):
            return self._of(order)
        kept, copies = Copies.of(order if self.copies is None else self.copies.rows.index_select(0, order))
        if len(kept) == len(self.keys):
            return self._replace(copies=copies)
        return self._of(kept)._replace(copies=copies)

    def opened_by_each(self) -> Tensor:
        """The windows that each hypothesis opens, (B, H, m)."""
        return self.opened if self.copies is None else self.opened.index_select(0, self.copies.rows)

    def _of(self, rows: Tensor) -> "Reading":
        keys, values, bias, opened = (x.index_select(0, rows) for x in self[:4])
        return Reading(keys, values, bias, opened)

    def _folded(self, x: Tensor) -> Tensor:
        return x if self.copies is None else self.copies.folded(x)

    def _unfolded(self, x: Tensor) -> Tensor:
        return x if self.copies is None else self.copies.unfolded(x)


def finds_copies(device: torch.device) -> bool:
    """Whether a search looks for copies of a hypothesis, for which a GPU would have to be waited for."""
    return device.type == "cpu"


class GroupState(NamedTuple):
    """What a search keeps to attend with the sizes that some of the sentences ask for."""

    table: TokenTable | WindowTable  # of all sentences
    chosen: Tensor | None  # whether a sentence asks for these sizes, (B,); None where all do
    queries: Tensor | None = None  # the last ones, (up to `CHOOSING`, B h, H, d); None in full attention
    reading: Reading | None = None

    def attend(
        self, query: Tensor, position: int, dropout: float, need_weights: bool
    ) -> tuple[Tensor, Tensor | None, "GroupState"]:
        """What each head gives for the next query (1, B h, H, d), (B h, H, 1, d), the weights if they are needed, and
        the search with that query, which opens windows where it begins a block."""
        table, _, queries, reading = self
        if isinstance(table, TokenTable):
            return *attend_in_full(query, table, dropout, need_weights), self
        queries = query if queries is None else torch.cat([queries[1 - CHOOSING :], query])
        if reading is None or position % table.sizes.block == 0:
            worth = shares_by_tokens(queries, table).sum(2, keepdim=True)
            opened = ranked(with_windows_ahead(worth, table.sizes, table.counts))[..., : table.sizes.opened]
            rows = rows_of_blocks(opened, bias_of_windows(opened, table), table)
            keys, values = (x.view(*opened.shape[:2], *x.shape[2:]) for x in gathered(rows, table))
            reading = Reading(keys, values, rows.bias.squeeze(2), opened.squeeze(2))
        out, weights = reading.attend(query.permute(1, 2, 0, 3), dropout, need_weights)
        if weights is not None:
            weights = weights_of_rows(weights[:, :, None], reading.opened_by_each()[:, :, None], table).squeeze(2)
        return out, weights, self._replace(queries=queries, reading=reading)

    def reordered(self, order: Tensor, sentences: Tensor | None) -> "GroupState":
        """Keeps some hypotheses, in their new order.

        Args:
            sentences: those that stay; None where all do.
        """
        table, chosen, queries, reading = self
        if sentences is not None:
            chosen = None if chosen is None else chosen.index_select(0, sentences)
            tensors = {name: x for name, x in table._asdict().items() if isinstance(x, Tensor)}
            kept: dict[str, Any] = {name: x.index_select(0, sentences) for name, x in tensors.items()}
            table = table._replace(**kept)
        queries = None if queries is None else queries.index_select(1, order)
        return GroupState(table, chosen, queries, None if reading is None else reading.reordered(order))


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


class PastBlocks(NamedTuple):
    """The whole blocks of hypotheses, which are written once, with the means of their groups. Hypotheses that change
    places take the places of their blocks with them, not the blocks."""

    sizes: Sizes
    places: Tensor  # where each hypothesis finds each of its blocks among R, (B, P)
    keys: Tensor  # with room for more blocks, (at least P, R, H, q, d)
    values: Tensor  # like the keys
    mean_keys: Tensor  # those of groups, (at least P, R, H, c, d)
    mean_values: Tensor  # like the mean keys
    tokens: Tensor  # the tokens of groups, as places in their block, (at least P, R, H, c, l)

    @classmethod
    def of(cls, keys: Tensor, values: Tensor, sizes: Sizes) -> "PastBlocks":
        """The blocks of these keys and values, (B, H, P q, d)."""
        places = torch.arange(len(keys), device=keys.device)[:, None].expand(-1, keys.size(2) // sizes.block)
        keys, values = (x.unflatten(2, (-1, sizes.block)).movedim(2, 0).contiguous() for x in (keys, values))
        tokens = tokens_of_groups(keys, sizes)
        mean_keys, mean_values = (means_of_groups(x, tokens) for x in (keys, values))
        return cls(sizes, places, keys, values, mean_keys, mean_values, tokens.contiguous())

    def with_block(self, keys: Tensor, values: Tensor) -> "PastBlocks":
        """Writes one more block, (B, H, q, d); what lacks room is copied to where there is twice as much."""
        batch, whole = self.places.shape
        room, most = self.keys.shape[:2]
        more = (0, max(0, batch - most), 0, room if whole == room else 0)
        stores = [F.pad(x, (0, 0) * (x.dim() - 2) + more) if any(more) else x for x in self[2:]]
        one = PastBlocks.of(keys, values, self.sizes)
        for store, x in zip(stores, one[2:], strict=True):
            store[whole, :batch] = x[0]
        return PastBlocks(self.sizes, torch.cat([self.places, one.places], 1), *stores)

    def reordered(self, order: Tensor) -> "PastBlocks":
        """Keeps some hypotheses, in their new order."""
        return self._replace(places=self.places.index_select(0, order))

    def read(self, queries: Tensor) -> Reading:
        """What the block after these reads that begins with the last of some queries, (up to `CHOOSING`, B, H, d)."""
        stores = self.keys, self.mean_keys, self.mean_values
        keys, mean_keys, mean_values = (x.flatten(2, 3) for x in self._gathered(self._every(), 1, *stores))
        start = torch.full((1,), keys.size(2), device=queries.device)
        counted = torch.ones(1, len(queries), dtype=torch.bool, device=queries.device)
        own = queries.permute(1, 2, 0, 3).unsqueeze(2)
        opened, bias = (
            x.squeeze(2) for x in choose(own, keys, mean_keys, self.tokens_of_groups(), self.sizes, start, counted)
        )
        parts = self.sizes.block // self.sizes.width
        windows = (x.flatten(2, 3) for x in self._gathered(opened, parts, self.keys, self.values))
        keys, values = (torch.cat(x, 2) for x in zip((mean_keys, mean_values), windows, strict=True))
        return Reading(keys, values, F.pad(bias, (0, keys.size(2) - bias.size(2))), opened)

    def tokens_of_groups(self) -> Tensor:
        """The tokens of the groups of every hypothesis, as places in the text, (B, H, P c, l)."""
        return in_text(self._gathered(self._every(), 1, self.tokens)[0], self.sizes)

    def _every(self) -> Tensor:
        """The numbers of all blocks for every hypothesis and head, (B, H, P)."""
        batch, whole = self.places.shape
        return torch.arange(whole, device=self.places.device).expand(batch, self.keys.size(2), -1)

    def _gathered(self, index: Tensor, parts: int, *stores: Tensor) -> list[Tensor]:
        """What each store holds of some blocks, or of some of the equal parts of blocks, of every hypothesis.

        Args:
            index: the numbers of blocks or parts, (B, H, n).
            parts: of each block.
            stores: (at least P, R, H, q, ...).

        Returns:
            (B, H, n, q / parts, ...) for each.
        """
        _, most, heads = stores[0].shape[:3]
        blocks = index // parts
        own = self.places[:, None].expand(-1, heads, -1).gather(2, blocks)
        rows = (blocks * most + own) * heads + torch.arange(heads, device=index.device)[:, None]
        rows = (rows * parts + index % parts).flatten()
        views = [x.unflatten(3, (parts, -1)).flatten(0, 3) for x in stores]
        return [x.flatten(1).index_select(0, rows).view(*index.shape, *x.shape[1:]) for x in views]


@dataclass(frozen=True)
class TargetState:
    """What causal attention keeps of the tokens so far.

    It may be copied and reordered, but only one copy may go on: all of them write to the same blocks.
    """

    sizes: Sizes
    exact: int  # how many first tokens get full attention, whole blocks
    position: int  # the number of tokens
    past: PastTokens  # all of the first tokens, and then those after the whole blocks
    queries: Tensor  # the last ones, (up to `CHOOSING`, B, H, d)
    blocks: PastBlocks | None = None  # None among the first tokens
    reading: Reading | None = None  # None before the first token of a block

    @classmethod
    def begin(cls, query: Tensor, key: Tensor, value: Tensor, sizes: Sizes, exact: int) -> "TargetState":
        """Begins with these tokens, (T, B, H, d) each, of which there may be none."""
        length, blocks, reading = len(query), None, None
        start = 0 if length < exact else length - length % sizes.block
        keys, values = (x.permute(1, 2, 0, 3) for x in (key, value))
        if start:
            blocks = PastBlocks.of(keys[:, :, :start], values[:, :, :start], sizes)
            if length > start:
                reading = blocks.read(query[: start + 1][-CHOOSING:])
        past = PastTokens(keys[:, :, start:], values[:, :, start:])
        return cls(sizes, exact, length, past, query[-CHOOSING:], blocks, reading)

    def reordered(self, order: Tensor) -> "TargetState":
        """Keeps some hypotheses, in their new order."""
        blocks = None if self.blocks is None else self.blocks.reordered(order)
        reading = None if self.reading is None else self.reading.reordered(order)
        queries = self.queries.index_select(1, order)
        return replace(self, past=self.past.reordered(order), queries=queries, blocks=blocks, reading=reading)

    def attend(
        self, tokens: tuple[Tensor, ...], dropout: float, need_weights: bool
    ) -> tuple[Tensor, Tensor | None, "TargetState"]:
        """What each head gives for one more token, (B, H, 1, d), the weights over all tokens so far if they are needed,
        (B, H, 1, n), and the search with that token.

        Args:
            tokens: its query, not scaled, its key and its value, (1, B, H, d).
        """
        query, *key_and_value = tokens
        own, *key_and_value = (x.permute(1, 2, 0, 3) for x in tokens)
        past, blocks, reading = self.past.with_tokens(*key_and_value), self.blocks, self.reading
        queries = torch.cat([self.queries[1 - CHOOSING :], query])
        if blocks is None:
            out, weights = softmax_attention(own, past.keys, past.values, None, dropout, need_weights)
        else:
            reading = blocks.read(queries) if reading is None else reading
            # scores and values are kept apart, as to put keys together would copy them
            shares = torch.softmax(torch.cat([reading.scores(own), scores(own, past.keys)], 3), 3)
            parts = [reading.keys.size(2), past.keys.size(2)]
            of_reading, of_past = F.dropout(shares, dropout).to(query.dtype).split(parts, 3)
            out, weights = reading.mixed(of_reading) + of_past @ past.values, None
            if need_weights:
                of_reading, of_past = shares.split(parts, 3)
                labels, opened = labels_of(blocks.tokens_of_groups()), reading.opened_by_each()
                weights = torch.cat([weights_over_tokens(of_reading, *labels, opened, self.sizes.width), of_past], 3)
        search = replace(self, position=self.position + 1, past=past, queries=queries, reading=reading)
        return out, weights, search._with_whole_blocks()

    def _with_whole_blocks(self) -> "TargetState":
        """The search with its last tokens among whole blocks, if they fill one and are not among the first tokens."""
        if self.position < self.exact or self.position % self.sizes.block:
            return self
        keys, values, blocks = self.past.keys, self.past.values, self.blocks
        blocks = PastBlocks.of(keys, values, self.sizes) if blocks is None else blocks.with_block(keys, values)
        return replace(self, past=PastTokens(keys[:, :, :0], values[:, :, :0]), blocks=blocks, reading=None)


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
