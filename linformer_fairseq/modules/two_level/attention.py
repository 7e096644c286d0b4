"""Attention in two levels to a source: to the tokens of some windows one by one, and to the means of all others."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import BaseAttention, Call, Moves
from linformer_fairseq.modules.ops.memo import remembered
from linformer_fairseq.modules.ops.padding import Padding
from linformer_fairseq.modules.registry import register_attention
from linformer_fairseq.modules.two_level.arithmetic import (
    TokenTable,
    WindowTable,
    attend_in_full,
    attend_to_rows,
    bias_of_clusters,
    bias_of_windows,
    of_chosen_group,
    ranked,
    rows_of_blocks,
    window_counts,
    window_table,
    worth_by_means,
    worth_by_past,
)
from linformer_fairseq.modules.two_level.sizes import (
    DEFAULTS,
    EXACT_BELOW,
    NEWEST,
    DefaultSizes,
    SizeRule,
    Sizes,
    TwoLevelOptions,
)
from linformer_fairseq.modules.two_level.steps import (
    GroupState,
    SourceState,
    TargetState,
    attend_in_steps,
    in_source_order,
)

Result = tuple[Tensor, Tensor | None]
"""What each head gives, (B h, H, T, d), and the weights over tokens if they are needed, (B h, H, T, n)."""


class SentenceGroup(NamedTuple):
    """Sentences of a batch whose lengths ask for the same sizes."""

    sizes: Sizes | None  # None for full attention
    tokens: int  # n of the longest sentence
    padding: Tensor | None  # true at padded positions, (B, n); None where there are none
    counts: Tensor | None  # the tokens of each window, (B, s); None in full attention, and where every window has w
    rows: Tensor | None = None  # the numbers of the sentences; None where the group has tensors for all of the batch
    chosen: Tensor | None = None  # then, where there are several groups, whether a sentence belongs to this one, (B,)

    def table(self, keys: Tensor, values: Tensor) -> TokenTable | WindowTable:
        """What the queries of these sentences attend to, of keys and values (n, B, H, d) of the batch."""
        keys, values = (
            x[: self.tokens] if self.rows is None else x[: self.tokens].index_select(1, self.rows)
            for x in (keys, values)
        )
        padding = None if self.padding is None else self.padding[:, : self.tokens]
        if self.sizes is None:
            bias = None
            if padding is not None:
                bias = torch.zeros_like(padding, dtype=keys.dtype).masked_fill(padding, -torch.inf)[:, None, None]
            return TokenTable(keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3), bias)
        if padding is not None:
            keys, values = (x.masked_fill(padding.t()[:, :, None, None], 0.0) for x in (keys, values))
        return window_table(keys, values, self.sizes, self.counts)


class Batch(NamedTuple):
    """The sentences of a batch in groups."""

    groups: tuple[SentenceGroup, ...]
    places: Tensor | None = None  # of each sentence in groups that follow one another, (B,); None if each has all


@remembered
def batch_of(lengths: Tensor, known: tuple[int, ...] | None, n: int, rule: SizeRule, separate: bool) -> Batch:
    """Groups the sentences of a padded batch.

    Args:
        lengths: the tokens of each sentence, (B,).
        known: the lengths as Python numbers; None while torch.compile is tracing, which takes groups for all lengths.
        n: the length to which sentences are padded.
        separate: whether each group has tensors for its own sentences alone; otherwise it has some for all.
    """
    at_least_one, lengths = [max(1, x) for x in known or ()], lengths.clamp(min=1)
    found = [(*x, [length for length in at_least_one if x[0] <= length <= x[1]]) for x in rule.ranges(n)]
    ranges = [x for x in found if x[3]] if known is not None else found

    def group(sizes: Sizes | None, lengths: Tensor, tokens: int, **which: Tensor) -> SentenceGroup:
        padding = torch.arange(n, device=lengths.device) >= lengths[:, None]
        counts = None if sizes is None else window_counts(lengths, tokens, sizes.width)
        return SentenceGroup(sizes, tokens, padding, counts, **which)

    longest = max(at_least_one, default=n)
    if len(ranges) == 1:
        return Batch((group(ranges[0][2], lengths, longest),))
    if known is None or not separate:
        chosen = [(first <= lengths) & (lengths <= last) for first, last, _, _ in ranges]
        groups = [group(x[2], lengths, longest, chosen=own) for x, own in zip(ranges, chosen, strict=True)]
        return Batch(tuple(groups))
    order = lengths.argsort(stable=True)
    rows = order.split([len(own) for _, _, _, own in ranges])
    groups = [
        group(sizes, lengths.index_select(0, own_rows), max(own), rows=own_rows)
        for (_, _, sizes, own), own_rows in zip(ranges, rows, strict=True)
    ]
    return Batch(tuple(groups), order.argsort())


class BaseTwoLevelAttention(BaseAttention):
    """What two-level attention to a source and in a decoder have in common: the rule of sizes, and a search's state."""

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        projected_dim: int,
        open_slots: int | None = None,
        slot_width: int | None = None,
        block_size: int | None = None,
        exact_below: int = EXACT_BELOW,
        defaults: Mapping[str, DefaultSizes] = DEFAULTS[NEWEST],
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, *args, **options)
        self.rule = SizeRule(projected_dim, defaults[self.place], open_slots, slot_width, block_size, exact_below)

    def heads(self, x: Tensor) -> Tensor:
        """The features of each head, (T, B, C) to (T, B, H, d)."""
        return x.unflatten(2, (self.num_heads, self.head_dim))

    def reordered(self, cached: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        search: SourceState | TargetState = cached["search"]
        return {"search": search.reordered(new_order)}


@register_attention(
    "two-level",
    TwoLevelOptions,
    "means of windows, of which blocks of queries open the best to attend to their tokens one by one",
    defaults={"linformer_attention": "encoder,cross,decoder"},
)
class TwoLevelAttention(BaseTwoLevelAttention):
    r"""Attention in two levels, a drop-in for fairseq's `MultiheadAttention` without parameters of its own.

    A sentence of n tokens is cut into windows of w. Blocks of q neighbouring queries open the same m windows, and
    attend to their tokens one by one, and to the means K̄, V̄ of groups of tokens for all others:

        S̄ = Q K̄ᵀ / √d + β             scores of the means
        S = Q Kᵀ / √d                  scores of the tokens in opened windows
        out = softmax([S̄, S]) [V̄; V]

    It costs O(T (n / w + m w + n / q)) for T queries. In self-attention a block opens what its own queries would attend
    to most if they saw all windows by their means. Groups are clusters of tokens with similar keys, and β is what makes
    a mean of all its tokens weigh as much as those of them that are in closed windows, averaged over 4 queries of the
    block: β = log Σ exp(q kᵀ / √d) - q k̄ᵀ / √d. In cross-attention groups are the windows that stay closed, and β =
    log w. A block's first query and the 7 before it choose, by their attention to all tokens, so that no target token
    depends on a later one; the windows that follow, as many as q tokens pass, are worth nine tenths as much.
    Sentences with fewer than `exact_below` tokens, with at most k, and those whose windows are all opened get full
    attention. The sizes depend on the length of a sentence alone. Where lengths ask for several sizes, a pass computes
    their sentences apart, without the keys beyond the longest of them; a search, whose sentences come and go, computes
    all of them with all of these sizes.

    Args:
        args, options: as `BaseAttention` and fairseq take them; `max_positions` is no limit here.
        projected_dim: k, the largest number of windows, unless `slot_width` is given.
        open_slots, slot_width, block_size: m, w and q; by default they follow from the length and k (`SizeRule`).
        defaults: what sizes that are not given follow from, by place, and whether an encoder's groups are windows, too.
        exact_below: shorter sentences get full attention.

    Raises:
        ValueError: for what no kind supports, and k, m, w or q below 1.
    """

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={size}" for name, size in vars(self.rule).items() if isinstance(size, int))

    def attend(self, call: Call) -> Result:
        query, state = self.heads(self.q_proj(call.query)), call.incremental_state
        search: SourceState | None = self.cached(state).get("search")
        if search is None:
            assert call.key is not None
            assert call.value is not None
            keys, values = self.heads(self.k_proj(call.key)), self.heads(self.v_proj(call.value))
            batch = self._batch(call)
            if state is None:
                out, weights = self._attend_by_group(query, keys, values, batch, call.need_weights)
                if weights is None:
                    return out, None
                return out, in_source_order(weights, self.places(call), keys.size(1))
            tables = [group.table(keys, values) for group in batch.groups]
            tables = [x._replace(keys=x.keys.contiguous(), values=x.values.contiguous()) for x in tables]
            groups = tuple(GroupState(x, group.chosen) for x, group in zip(tables, batch.groups, strict=True))
            search = SourceState(groups, self.places(call), query.size(1) // keys.size(1))
        assert state is not None
        out, weights, search = attend_in_steps(search, (query,), self.dropout_probability, call.need_weights)
        self.cache(state, {"search": search})
        return out, weights

    def moves(self, padding: Padding) -> Moves:
        """Nothing where the whole batch gets full attention, which needs no order."""
        if padding.known_lengths is None:
            return "tokens"
        exact = max(self.rule.exact_below, self.rule.projected_dim + 1)
        return "nothing" if max(padding.known_lengths) < exact else "tokens"

    def _batch(self, call: Call) -> Batch:
        """The sentences of a call in groups."""
        assert call.key is not None
        n, padding = len(call.key), call.padding
        if padding is not None:
            if self.moves(padding) == "nothing":
                return Batch((SentenceGroup(None, n, ~padding.seen()[:, 0, 0], None),))
            return batch_of(padding.lengths, padding.known_lengths, n, self.rule, call.incremental_state is None)
        sizes, counts = self.rule.sizes(n), None
        if sizes is not None and n % sizes.width:
            counts = window_counts(torch.full(call.key.shape[1:2], n, device=call.key.device), n, sizes.width)
        return Batch((SentenceGroup(sizes, n, None, counts),))

    def _attend_by_group(self, query: Tensor, keys: Tensor, values: Tensor, batch: Batch, need_weights: bool) -> Result:
        """Attends from queries (T, B h, H, d) to keys and values (n, B, H, d)."""
        hypotheses, results = query.size(1) // keys.size(1), []
        for group in batch.groups:
            own = query
            if group.rows is not None:
                own = query.unflatten(1, (-1, hypotheses)).index_select(1, group.rows).flatten(1, 2)
            results.append(self._attend_to_table(own, group.table(keys, values), group.padding, need_weights))
        if batch.places is None:
            return of_chosen_group(results, [group.chosen for group in batch.groups], len(keys))
        places, outs, weights = batch.places, *zip(*results, strict=True)
        out = torch.cat([out.permute(2, 0, 1, 3) for out in outs], 1).unflatten(1, (-1, hypotheses))
        out = out.index_select(1, places).flatten(1, 2).permute(1, 2, 0, 3)
        if not need_weights:
            return out, None
        every = torch.cat([F.pad(x, (0, len(keys) - x.size(3))) for x in weights]).unflatten(0, (-1, hypotheses))
        return out, every.index_select(0, places).flatten(0, 1)

    def _attend_to_table(
        self, query: Tensor, table: TokenTable | WindowTable, padding: Tensor | None, need_weights: bool
    ) -> Result:
        """Attends from queries (T, B h, H, d) to a table; `padding` (B, n) is true at padded positions."""
        if isinstance(table, TokenTable):
            return attend_in_full(query, table, self.dropout_probability, need_weights)
        worth = worth_by_means(query, table, padding) if self.self_attention else worth_by_past(query, table)
        windows = ranked(worth)[..., : table.sizes.opened]
        if table.clusters is None:
            of_means = bias_of_windows(windows, table)
        else:
            of_means = bias_of_clusters(query, windows, table, padding)
        rows = rows_of_blocks(windows, of_means, table)
        return attend_to_rows(query, rows, table, self.dropout_probability, need_weights)
