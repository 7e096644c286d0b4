"""Attention in two levels to a source: to the tokens of some windows one by one, and to the means of all others."""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import Call, IncrementalState
from linformer_fairseq.modules.cross_attention_cache import Rows, from_cache, reorder_cache, to_cache
from linformer_fairseq.modules.level_sizes import CROSS, ENCODER, EXACT_BELOW, SizeRule, TwoLevelOptions
from linformer_fairseq.modules.ops.beams import Descent, descend, fold_beams, unfold_beam_weights, unfold_beams
from linformer_fairseq.modules.ops.padding import no_padding
from linformer_fairseq.modules.ops.thresholds import thresholds
from linformer_fairseq.modules.ops.two_level import (
    Choice,
    LevelSizes,
    Summaries,
    attend_by_blocks,
    choice_of,
    open_windows,
    ranges_of_windows,
    ranked,
    shares_of_windows,
    token_table,
    weights_by_blocks,
    window_sizes,
    worth_to_own_queries,
    worth_to_past_queries,
)
from linformer_fairseq.modules.projections import check_dims
from linformer_fairseq.modules.registry import register_attention
from linformer_fairseq.modules.source_attention import Heads, Source, SourceAttention

try:
    from torch.compiler import is_compiling
except ImportError:  # torch before 2.3
    from torch._utils import is_compiling


class Levels(NamedTuple):
    """Keys and values of B sentences, in one of the forms that their lengths ask for; each tensor has B rows."""

    keys: Tensor
    """A table (B, H, R, d) where the form has two levels, and all tokens (B, H, n, d) where it is full attention."""
    values: Tensor
    """Likewise."""
    lengths: Tensor
    """Tokens of each sentence."""
    padding_mask: Tensor | None
    """(B, n or more), true at padded positions; None where there are none and no weights will be asked for."""
    ranges: Tensor | None = None
    """Of the windows' keys, (B, H, s, 2, d), where the form has two levels; otherwise None."""


class Form(NamedTuple):
    """What the lengths of a batch ask for; nearly always it is the same for all sentences."""

    sizes: LevelSizes | None
    """None for full attention."""
    longest: int
    """n, of the padded sentences."""
    full: bool
    """Whether all sentences have n tokens, a multiple of w."""
    first: int
    """Tokens of the shortest sentences that it is for."""
    last: int
    """Tokens of the longest."""

    def windows(self) -> int:
        """The number of windows, s."""
        return 0 if self.sizes is None else self.sizes.windows(self.longest)

    def tokens(self, lengths: Tensor) -> Tensor | None:
        """The tokens of each window of sentences with these lengths, (B, s); None where every window has w."""
        return None if self.full or self.sizes is None else window_sizes(lengths, self.windows(), self.sizes.width)


class Past(NamedTuple):
    """What a search remembers for the choice of windows by B h hypotheses."""

    queries: Tensor
    """The queries of the block that the last one is in, (B h, up to q, H, d)."""
    choice: Choice
    """What this block attends to."""
    descent: Descent | None
    """Whose choice is whose; None while every hypothesis has a row of its own."""

    def reordered(self, order: Tensor) -> "Past":
        """The past of the hypotheses that stay, in their new order.

        Those that descend from the same one share its choice from now on, so that what it opens is read once for all of
        them; on a GPU, which would have to be waited for, each keeps a copy.
        """
        queries = self.queries.index_select(0, order)
        if not thresholds(order.device).shares_rows:
            return Past(queries, self.choice.reordered(order), None)
        kept, descent = descend(order if self.descent is None else self.descent.rows.index_select(0, order))
        choice = self.choice if len(kept) == len(self.choice.opened) else self.choice.reordered(kept)
        return Past(queries, choice, descent)


class Part(NamedTuple):
    """What a search keeps for the sentences of one form."""

    form: Form
    rows: Rows
    """The levels, and whether a sentence is `chosen`, as `cross_attention_cache` keeps them."""
    past: Past | None
    """None before the first query, and for full attention."""

    def levels(self) -> Levels:
        """What the queries of all sentences attend to."""
        return Levels(**{name: x for name, x in from_cache(self.rows).items() if name != "chosen"})

    def chosen(self) -> Tensor:
        """Whether the length of a sentence asks for this form, (B,)."""
        return self.rows["chosen"]


@register_attention(
    "two-level",
    TwoLevelOptions,
    "means of windows, of which blocks of queries open the best to attend to their tokens one by one",
    defaults={"linformer_attention": "encoder,cross,decoder"},
)
class TwoLevelAttention(SourceAttention[Levels]):
    r"""Attention in two levels, a drop-in for fairseq's `MultiheadAttention` without parameters of its own.

    A sentence of n tokens is cut into windows of w. To a query a window stands for its tokens by their mean K̄, V̄, hence
    the log w; blocks of q neighbouring queries open the same m windows and attend to their tokens instead:

        S̄ = Q K̄ᵀ / √d + log w         scores of the windows that stay closed
        S = Q Kᵀ / √d                  scores of the tokens in opened windows
        out = softmax([S̄, S]) [V̄; V]

    It costs O(T (n / w + m w)) for T queries. In self-attention a block opens what its own queries attend to most, in
    cross-attention what its first query and the q - 1 before it do, so that no target token depends on a later one;
    there the windows that follow, as many as q tokens pass, count half. How much a query attends to a window is judged
    by its mean and by the largest score that its tokens can have.
    Sentences with fewer than `exact_below` tokens, with at most k, and those whose windows are all opened get full
    attention. Which form is computed depends on the length of a sentence alone.

    Where sentences are padded to `exact_below` tokens or more, they may differ in form. The processor then looks at
    their lengths, and waits for the device: once in a forward pass of an encoder, and once in one of a decoder, or in
    all steps of a search together. Otherwise nothing waits.

    Args:
        args, options: as `ProjectedAttention` and fairseq take them.
        projected_dim: k, the largest number of windows, unless `slot_width` is given.
        max_positions: N, the longest sentence in tokens.
        open_slots, slot_width, block_size: m, w and q; by default they follow from the length and k (`SizeRule`).
        exact_below: shorter sentences get full attention.

    Raises:
        ValueError: for what no kind supports, k < 1 or k > N, and m, w or q below 1.
    """

    memory_type = Levels
    convolves = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        projected_dim: int,
        max_positions: int,
        open_slots: int | None = None,
        slot_width: int | None = None,
        block_size: int | None = None,
        exact_below: int = EXACT_BELOW,
        **options: Any,
    ) -> None:
        check_dims(projected_dim)
        super().__init__(embed_dim, num_heads, *args, max_positions=max_positions, **options)
        self.rule = SizeRule(
            projected_dim, ENCODER if self.self_attention else CROSS, open_slots, slot_width, block_size, exact_below
        )

    def extra_repr(self) -> str:
        names = ("slot_width", "open_slots", "block_size", "exact_below")
        told = [f"{name}={size}" for name in names if (size := getattr(self.rule, name)) is not None]
        return ", ".join([f"k={self.rule.projected_dim}", f"N={self.max_positions}", *told])

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if call.incremental_state is not None:
            return self._attend_in_search(call, call.incremental_state)
        source = self._source(call)
        if call.need_weights and source.padding_mask is None:
            source = source._replace(padding_mask=no_padding(source.key))  # whose shape weights need
        forms, heads = self._forms(source), self.heads(source, len(call.query))
        if len(forms) > 1 and not is_compiling():
            return self._attend_in_parts(call, [form for form, _ in forms], source, heads)
        results = [
            self._attend(call, form, self._levels(form, heads, source.lengths, source.padding_mask), heads.convolved)
            for form, _ in forms
        ]
        return _by_sentence(results, [chosen for _, chosen in forms])

    def _attend_in_parts(
        self, call: Call, forms: list[Form], source: Source, heads: Heads
    ) -> tuple[Tensor, Tensor | None]:
        """The same where sentences differ in form: each form is computed for its own sentences, without the keys beyond
        the longest of them.
        """
        known = self._known(source.lengths)
        by_form = [[x for x in known if form.first <= x <= form.last] for form in forms]
        order = self.length_cache.get("sentences by length", source.lengths, lambda x: x.argsort(stable=True))
        results = [
            self._attend_in_part(rows, call, form._replace(longest=max(lengths)), source, heads)
            for form, lengths, rows in zip(forms, by_form, order.split([len(x) for x in by_form]), strict=True)
        ]
        back = self.length_cache.get("places by length", source.lengths, lambda _: order.argsort())
        out = torch.cat([out for out, _ in results], 1).index_select(1, back)
        if not call.need_weights:
            return out, None
        return out, torch.cat([weights for _, weights in results if weights is not None], -3).index_select(-3, back)

    def _attend_in_part(
        self, rows: Tensor, call: Call, form: Form, source: Source, heads: Heads
    ) -> tuple[Tensor, Tensor | None]:
        """The output and weights of some of the sentences, of which none is longer than the form's longest."""
        assert source.padding_mask is not None
        own, mask = heads.of_sentences(rows, form.longest), source.padding_mask.index_select(0, rows)
        levels = self._levels(form, own, source.lengths.index_select(0, rows), mask)
        part = call._replace(query=call.query.index_select(1, rows), key=None, value=None, padding_mask=mask)
        return self._attend(part, form, levels, own.convolved)

    def _attend(self, call: Call, form: Form, levels: Levels, convolved: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The output (T, B, C), and the weights if they are needed, in one form."""
        if form.sizes is None:
            return self._attend_to_tokens(call.query, levels, call, convolved)
        query, block, windows = self._queries(call.query), form.sizes.block, _summaries(form, levels)
        if self.self_attention:
            order = ranked(worth_to_own_queries(query, windows, block, None if form.full else call.padding_mask))
        else:
            order = ranked(worth_to_past_queries(query, windows, block), form.sizes.ahead, windows.tokens)
        choice = self._choice(order, form, levels, windows.tokens)
        out, weights = self._attend_to_levels(query, choice, block, form, levels, call.need_weights)
        return self.output(out, convolved), None if weights is None else self._over_tokens(weights, levels, call)

    def _attend_in_search(self, call: Call, state: IncrementalState) -> tuple[Tensor, Tensor | None]:
        """The same for the next queries of a search."""
        cached = self.cached(state)
        parts: list[Part] = cached.get("parts", [])
        position: int = cached.get("position", 0)
        if not parts:
            source = self._source(call)
            if source.padding_mask is None:
                source = source._replace(padding_mask=no_padding(source.key))
            heads = self.heads(source, len(call.query))
            for form, chosen in self._forms(source):
                levels = self._levels(form, heads, source.lengths, source.padding_mask)
                rows = to_cache({**levels._asdict(), "chosen": chosen}, call.query.size(1))
                parts.append(Part(form, rows, None))
        results, kept = [], []
        for part in parts:
            form, past, levels = part.form, part.past, part.levels()
            if form.sizes is None:
                hypotheses = call.query.size(1) // len(levels.keys)
                out, weights = self._attend_to_tokens(fold_beams(call.query, hypotheses), levels, call)
                out = unfold_beams(out, hypotheses)
                weights = None if weights is None else unfold_beam_weights(weights, hypotheses)
            else:
                steps = []
                for number, query in enumerate(self._queries(call.query).split(1)):
                    past = self._choose(query, position + number, past, form, levels)
                    steps.append(self._step(query, past, form, levels, call.need_weights))
                out = self.output(torch.cat([out for out, _ in steps], 2))
                weights = None
                if call.need_weights:
                    weights = self._over_tokens(torch.cat([x for _, x in steps if x is not None], 2), levels, call)
            results.append((out, weights))
            kept.append(part._replace(past=past))
        self.cache(state, {"parts": kept, "position": position + len(call.query)})
        return _by_sentence(results, [part.chosen() for part in kept])

    def _choose(self, query: Tensor, position: int, past: Past | None, form: Form, levels: Levels) -> Past:
        """The past with one more query (1, B h, H, d), and with the choice of its block."""
        row = query.transpose(0, 1)
        assert form.sizes is not None
        if position % form.sizes.block:
            assert past is not None
            return past._replace(queries=torch.cat([past.queries, row], 1))
        queries = row if past is None else torch.cat([past.queries, row], 1)[:, -form.sizes.block :]
        hypotheses = len(queries) // len(levels.keys)
        rows = fold_beams(queries.transpose(0, 1).flatten(2), hypotheses).unflatten(2, query.shape[2:])
        windows = _summaries(form, levels)
        shares = shares_of_windows(rows, windows)
        shares = shares.unflatten(2, (-1, hypotheses)).permute(0, 3, 1, 2, 4).flatten(0, 1)  # (B h, H, t, s)
        tokens = None if windows.tokens is None else windows.tokens.repeat_interleave(hypotheses, 0)
        order = ranked(shares.sum(2, keepdim=True), form.sizes.ahead, tokens)
        return Past(row, self._choice(order, form, levels, tokens), None)

    def _choice(self, order: Tensor, form: Form, levels: Levels, tokens: Tensor | None) -> Choice:
        """The choice of blocks from all windows, those worth most first, (B h, H, Y, s)."""
        assert form.sizes is not None
        opened = order[..., : form.sizes.opened]
        return choice_of(opened, form.sizes, form.windows(), tokens, levels.keys.dtype)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Keeps the rows of the hypotheses that stay, in their new order."""
        cached = self.cached(incremental_state)
        if not cached:
            return incremental_state
        parts = []
        for form, rows, past in cached["parts"]:
            past = None if past is None else past.reordered(new_order)
            parts.append(Part(form, reorder_cache(rows, new_order), past))
        return self.cache(incremental_state, {**cached, "parts": parts})

    def _forms(self, source: Source) -> list[tuple[Form, Tensor]]:
        """The forms that the lengths of the sentences ask for, each with the sentences that have it, (B,).

        They are in the order of lengths. The one look at lengths is here, as without it all forms would have to be
        computed.
        """
        n, lengths = len(source.key), source.lengths
        longest = self.rule.sizes(n)
        ranges = [(1, n, longest)]
        if source.padding_mask is not None:
            ranges = list(self.rule.ranges(n))
        if len(ranges) > 1 and not is_compiling():
            known = self._known(lengths)
            ranges = [(first, last, sizes) for first, last, sizes in ranges if any(first <= x <= last for x in known)]
        forms = []
        at_least_one = lengths.clamp(min=1) if len(ranges) > 1 else lengths
        everyone = self.length_cache.get("every sentence", lengths, lambda x: torch.ones_like(x, dtype=torch.bool))
        for first, last, sizes in ranges:
            full = source.padding_mask is None and sizes is not None and n % sizes.width == 0
            chosen = everyone if len(ranges) == 1 else (first <= at_least_one) & (at_least_one <= last)
            forms.append((Form(sizes, n, full, first, last), chosen))
        return forms

    def _known(self, lengths: Tensor) -> list[int]:
        """The lengths of sentences, at least 1, for the processor, which waits for them."""
        return self.length_cache.get("known lengths", lengths, lambda x: x.clamp(min=1).tolist())

    def _levels(self, form: Form, heads: Heads, lengths: Tensor, padding_mask: Tensor | None) -> Levels:
        """Makes the keys and values of a source in a form."""
        key, value = heads.keys, heads.values
        ranges = None
        if form.sizes is None:
            key, value = key.permute(1, 2, 0, 3), value.permute(1, 2, 0, 3)
        else:
            if padding_mask is not None:
                padding = padding_mask[:, : len(key)].t()[:, :, None, None]
                key, value = key.masked_fill(padding, 0.0), value.masked_fill(padding, 0.0)
            tokens = form.tokens(lengths)
            key, value = token_table(key, form.sizes, tokens), token_table(value, form.sizes, tokens)
            ranges = ranges_of_windows(key, form.sizes.width, form.windows(), tokens)
        return Levels(key, value, lengths, padding_mask, ranges)

    def _attend_to_levels(
        self,
        query: Tensor,
        choice: Choice,
        block: int,
        form: Form,
        levels: Levels,
        need_weights: bool,
        sentences: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """What each head gives, (B, H, T, d), and its weights over tokens if they are needed, for queries (T, B, H, d)
        in blocks.

        Args:
            sentences: those of the queries, where they are not the levels' one after the other.
        """
        assert form.sizes is not None
        source = open_windows(levels.keys, levels.values, choice, form.sizes.group, sentences)
        out = attend_by_blocks(query, source, block, self.dropout_probability)
        if not need_weights:
            return out, None
        tokens = form.tokens(levels.lengths if sentences is None else levels.lengths.index_select(0, sentences))
        width, windows = form.sizes.width, form.windows()
        return out, weights_by_blocks(query, source, choice.opened, block, width, windows, tokens)

    def _step(
        self, query: Tensor, past: Past, form: Form, levels: Levels, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """The same for the next query of B h hypotheses, (1, B h, H, d)."""
        descent = past.descent
        if descent is None:
            return self._attend_to_levels(query, past.choice, 1, form, levels, need_weights)
        sentences = descent.sentences(query.size(1) // len(levels.keys))
        out, weights = self._attend_to_levels(
            descent.folded(query), past.choice, descent.most, form, levels, need_weights, sentences
        )
        return descent.unfolded(out), None if weights is None else descent.unfolded(weights)

    def _attend_to_tokens(
        self, query: Tensor, levels: Levels, call: Call, convolved: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Full attention, the same."""
        keys, values, padding_mask = levels.keys, levels.values, levels.padding_mask
        mask = None
        if padding_mask is not None:
            tokens = torch.arange(keys.size(2), device=keys.device)
            mask = (tokens < levels.lengths.clamp(min=1)[:, None])[:, None, None]
        if not call.need_weights:
            return self.softmax_attention(query, keys, values, mask, convolved), None
        out, weights = self.softmax_attention_with_probabilities(query, keys, values, mask, convolved)
        return out, self._over_tokens(weights, levels, call)

    def _over_tokens(self, weights: Tensor, levels: Levels, call: Call) -> Tensor:
        """The weights (B, H, T, any number) as fairseq returns them, over n tokens; an empty sentence has none."""
        assert levels.padding_mask is not None
        n, longest = levels.padding_mask.size(1), min(levels.padding_mask.size(1), self.max_positions)
        empty = levels.lengths == 0
        hypotheses = len(weights) // len(empty)
        empty = empty.repeat_interleave(hypotheses) if hypotheses > 1 else empty
        weights = weights[..., :longest].masked_fill(empty[:, None, None, None], 0.0)
        weights = F.pad(weights, (0, n - weights.size(3))).transpose(0, 1)
        return weights if call.by_head else weights.mean(0)

    def _queries(self, query: Tensor) -> Tensor:
        """(T, B, C) to the queries of each head, (T, B, H, d)."""
        return self.q_proj(query).unflatten(2, (self.num_heads, self.head_dim))


def _summaries(form: Form, levels: Levels) -> Summaries:
    """What blocks choose by."""
    assert levels.ranges is not None
    return Summaries(levels.keys[:, :, : form.windows()], levels.ranges, form.tokens(levels.lengths))


def _by_sentence(results: list[tuple[Tensor, Tensor | None]], chosen: list[Tensor]) -> tuple[Tensor, Tensor | None]:
    """The output (T, B h, C) and the weights (..., B h, T, n) of each sentence in the form that is chosen for it."""
    out, weights = results[0]
    for (other, other_weights), rows in zip(results[1:], chosen[1:], strict=True):
        rows = rows.repeat_interleave(out.size(1) // len(rows))
        out = torch.where(rows[:, None], other, out)
        if weights is not None and other_weights is not None:
            weights = torch.where(rows[:, None, None], other_weights, weights)
    return out, weights
