"""Attention to a window of neighbouring tokens alone, in encoders, cross-attention and decoders."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import Call, IncrementalState, ProjectedAttention
from linformer_fairseq.modules.cross_attention_cache import from_cache, reorder_cache, to_cache
from linformer_fairseq.modules.ops.padding import clear_padding, no_padding
from linformer_fairseq.modules.ops.sliding_window import Windows, window_attention, window_probabilities
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention
from linformer_fairseq.modules.source_attention import Source, SourceAttention

WINDOW_SIZE = 64


@dataclass
class WindowOptions(AttentionOptions):
    """How many tokens a window has."""

    uses_k = False

    linformer_window_size: int = field(
        default=WINDOW_SIZE,
        metadata={
            "help": "window: tokens that a query attends to, w: in the encoder w/2 to either side of its own, in the "
            "decoder the last w with its own"
        },
    )

    def validate(self) -> None:
        super().validate()
        _check_size(self.linformer_window_size)

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        own = {"max_positions": layers.max_positions, "window_size": self.linformer_window_size}
        return [own] * len(layers.projected_dims)


class Tokens(NamedTuple):
    """The keys and values of B sentences; each tensor has B rows."""

    keys: Tensor
    """(B, n, H, d)."""
    values: Tensor
    """(B, n, H, d)."""
    lengths: Tensor
    """Tokens of each sentence, (B,)."""
    padding_mask: Tensor | None
    """(B, n or more), true at padded positions; None where there are none and no weights will be asked for."""


@register_attention(
    "window",
    WindowOptions,
    "neighbouring tokens alone, which needs no k",
    defaults={"linformer_attention": "encoder,decoder"},
    self_attention_only=True,
)
class WindowAttention(SourceAttention[Tokens]):
    r"""Attention to a window of neighbouring tokens, a drop-in for fairseq's `MultiheadAttention` without parameters of
    its own. It costs O(T w) for T queries.

    In self-attention it is the sliding window of Longformer (Beltagy et al., 2020, section 3.1): token i attends to the
    tokens i - w/2 ... i + w/2 of its sentence. In cross-attention the window follows the diagonal: target token t
    attends to the w tokens

        from  min(max(0, ⌊r t + 1/2⌋ - w/2), n - w)  on        (w/2 is rounded down; all n tokens for n <= w)

    of the source, with the same r, source tokens for each target token, at all times. The length of a target is not
    known before it ends; a search can only use t and n, and this uses nothing else, so that its steps are equal to one
    pass. A target that is longer than its source by this rule stays at the last window. What is off the diagonal by
    more than w/2 is lost, which is what a comparison with this kind is to show.

    Args:
        args, options: as `ProjectedAttention` and fairseq take them.
        max_positions: N, the longest sentence in tokens.
        window_size: w.
        window_ratio: r.

    Raises:
        ValueError: for what no kind supports, w < 1, r that is no positive number, and, when it is called, in
            self-attention another number of keys than of queries.
    """

    memory_type = Tokens

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        max_positions: int,
        window_size: int = WINDOW_SIZE,
        window_ratio: float = 1.0,
        **options: Any,
    ) -> None:
        _check_size(window_size)
        _check_ratio(window_ratio)
        super().__init__(embed_dim, num_heads, *args, max_positions=max_positions, **options)
        self.window_size = window_size
        self.window_ratio = window_ratio

    def extra_repr(self) -> str:
        ratio = "" if self.self_attention else f", window_ratio={self.window_ratio:g}"
        return f"N={self.max_positions}, window_size={self.window_size}{ratio}"

    def compress(self, source: Source) -> Tokens:
        heads = (self.num_heads, self.head_dim)
        keys, values = (
            linear(x).unflatten(2, heads).transpose(0, 1)
            for linear, x in ((self.k_proj, source.key), (self.v_proj, source.value))
        )
        return Tokens(keys, values, source.lengths, source.padding_mask)

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        cached = self.cached(call.incremental_state)
        position: int = cached.get("position", 0)
        if cached:
            rows = cached["rows"]
            memory = Tokens(**from_cache(rows))
        else:
            source = self._source(call)
            if source.padding_mask is None and (call.need_weights or call.incremental_state is not None):
                source = source._replace(padding_mask=no_padding(source.key))  # whose shape weights need
            if self.self_attention and source.padding_mask is None and len(source.key) != len(call.query):
                raise ValueError(
                    f"window self-attention needs a key for every query, not {len(source.key)} for {len(call.query)}"
                )
            memory = self.compress(source)
            if call.incremental_state is not None:
                rows = to_cache(memory._asdict(), call.query.size(1))
        if call.incremental_state is not None:
            self.cache(call.incremental_state, {"rows": rows, "position": position + len(call.query)})
        query = self.q_proj(call.query).unflatten(2, (self.num_heads, self.head_dim))
        keys, values = memory.keys.transpose(0, 1), memory.values.transpose(0, 1)
        windows = self._windows(position, query, memory)
        out = self.out_proj(window_attention(query, keys, values, windows, self.dropout_probability).flatten(2))
        return out, self._weights(query, keys, windows, memory, call.by_head) if call.need_weights else None

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Keeps the rows of the hypotheses that stay, in their new order."""
        cached = self.cached(incremental_state)
        if not cached:
            return incremental_state
        return self.cache(incremental_state, {**cached, "rows": reorder_cache(cached["rows"], new_order)})

    def _windows(self, position: int, query: Tensor, memory: Tokens) -> Windows:
        """The windows of queries that come after `position` others."""
        numbers = torch.arange(position, position + len(query), device=query.device)[:, None]
        half = self.window_size // 2
        if self.self_attention:
            lengths = None if memory.padding_mask is None else memory.lengths
            return Windows(numbers - half, 2 * half + 1, 1.0, lengths)
        starts = (numbers.double() * self.window_ratio + 0.5).long() - half
        lengths = memory.lengths.clamp(min=1)  # a softmax of nothing would harm other sentences' gradients
        starts = starts.clamp(min=0).minimum((lengths - self.window_size).clamp(min=0))
        return Windows(starts, self.window_size, self.window_ratio, lengths)

    def _weights(self, query: Tensor, keys: Tensor, windows: Windows, memory: Tokens, by_head: bool) -> Tensor:
        """The weights over tokens as fairseq returns them; there are none for an empty sentence."""
        assert memory.padding_mask is not None
        weights = window_probabilities(query, keys, windows)
        padded = memory.padding_mask[:, : len(keys)]
        padded = padded.repeat_interleave(len(weights) // max(1, len(padded)), 0)
        weights = weights.masked_fill(padded[:, None, None], 0.0)
        weights = F.pad(weights, (0, memory.padding_mask.size(1) - len(keys)))
        return weights.transpose(0, 1) if by_head else weights.mean(1)


@register_attention("window", WindowOptions, "the last tokens alone, which needs no k", causal=True)
class CausalWindowAttention(ProjectedAttention):
    """Attention to the last w tokens, its own included: in a decoder a drop-in for fairseq's `MultiheadAttention`, with
    its parameters.

    It costs O(T w). A search keeps the keys and values of the last w - 1 tokens, whatever the position.

    Args:
        args, options: as `ProjectedAttention` and fairseq take them; `self_attention` has to be true.
        max_positions: N, the longest target in tokens.
        window_size: w.

    Raises:
        ValueError: for what no kind supports, cross-attention, and w < 1.
    """

    causal = True
    side = "target"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        max_positions: int,
        window_size: int = WINDOW_SIZE,
        **options: Any,
    ) -> None:
        _check_size(window_size)
        super().__init__(embed_dim, num_heads, *args, max_positions=max_positions, **options)
        if not self.self_attention:
            raise ValueError("causal window attention is self-attention; pass self_attention=True")
        self.window_size = window_size

    def extra_repr(self) -> str:
        return f"N={self.max_positions}, window_size={self.window_size}"

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        state = call.incremental_state
        cached = self.cached(state)
        position: int = cached.get("position", 0)
        key, value, mask = self.keys_and_values(call, position)
        length = len(call.query)
        if len(key) != length:
            raise ValueError(f"causal window attention needs a key for every query, not {len(key)} for {length}")
        clean_key = clear_padding(key, mask)
        clean_value = clean_key if value is key else clear_padding(value, mask)
        query, keys, values = (
            linear(x).unflatten(2, (self.num_heads, self.head_dim))
            for linear, x in ((self.q_proj, call.query), (self.k_proj, clean_key), (self.v_proj, clean_value))
        )
        if cached:
            keys, values = (torch.cat([cached[name], x]) for name, x in (("keys", keys), ("values", values)))
        if state is not None:
            kept = slice(max(0, len(keys) - self.window_size + 1), None)
            # copies, as a view would keep all of a long prefix
            self.cache(
                state, {"keys": keys[kept].clone(), "values": values[kept].clone(), "position": position + length}
            )
        first = len(keys) - length  # of these queries, among the keys
        ends = torch.arange(first, len(keys), device=query.device)[:, None]
        windows = Windows(ends - self.window_size + 1, self.window_size, 1.0, None)
        out = self.out_proj(window_attention(query, keys, values, windows, self.dropout_probability).flatten(2))
        if not call.need_weights:
            return out, None
        weights = F.pad(window_probabilities(query, keys, windows), (position - first, 0))
        if mask is not None:
            weights = weights.masked_fill(F.pad(mask, (position, 0))[:, None, None], 0.0)
        return out, weights.transpose(0, 1) if call.by_head else weights.mean(1)

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Keeps the hypotheses that stay, in their new order."""
        cached = self.cached(incremental_state)
        if not cached:
            return incremental_state
        kept = {name: cached[name].index_select(1, new_order) for name in ("keys", "values")}
        return self.cache(incremental_state, {**cached, **kept})


def _check_size(window_size: int) -> None:
    if window_size < 1:
        raise ValueError(f"--linformer-window-size must be at least 1, not {window_size}")


def _check_ratio(window_ratio: float) -> None:
    if not 0 < window_ratio < float("inf"):
        raise ValueError(f"--linformer-window-ratio must be a positive number, not {window_ratio}")
