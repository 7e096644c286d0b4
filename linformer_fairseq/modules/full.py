"""Full attention by torch's fused kernel, in encoders, cross-attention and decoders."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from linformer_fairseq.modules.base import BaseAttention, Call, Moves
from linformer_fairseq.modules.ops.padding import Padding
from linformer_fairseq.modules.ops.past_tokens import PastTokens
from linformer_fairseq.modules.ops.softmax_attention import softmax_attention
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention
from linformer_fairseq.modules.source_attention import Source, SourceAttention


class FullOptions(AttentionOptions):
    """The options of full attention: none."""

    uses_k = False

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        return [{} for _ in layers.projected_dims]


class SourceTokens(NamedTuple):
    """The keys and values of B sentences."""

    keys: Tensor
    """(B, H, n, d)."""
    values: Tensor
    """(B, H, n, d)."""
    seen: Tensor | None
    """True at tokens, (B, 1, 1, n); None where there is no padding."""


@register_attention(
    "full",
    FullOptions,
    "all tokens, as in fairseq, by torch's fused kernel; needs no k",
    defaults={"linformer_attention": "encoder,cross,decoder"},
)
class FullAttention(SourceAttention[SourceTokens]):
    """Full attention of an encoder or to a source, with the outputs of fairseq's `MultiheadAttention` but for rounding.

    It is computed by torch's fused kernel, which on a GPU is flash attention where a batch has no padding. In a search
    all hypotheses of a sentence share its keys and values. Padding stays where it is, and is taken to hold finite
    numbers.

    Args:
        args, options: as `BaseAttention` and fairseq take them.

    Raises:
        ValueError: for what no kind supports.
    """

    def moves(self, padding: Padding) -> Moves:
        return "nothing"

    def compress(self, source: Source) -> SourceTokens:
        keys, values = self.split_heads(self.k_proj(source.key)), self.split_heads(self.v_proj(source.value))
        return SourceTokens(keys, values, None if source.padding is None else source.padding.seen())

    def attend_to(
        self, query: Tensor, memory: SourceTokens, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        queries, dropout = self.split_heads(self.q_proj(query)), self.dropout_probability
        out, weights = softmax_attention(queries, *memory, dropout, need_weights)
        return out, weights if weights is None or by_head else weights.mean(1, keepdim=True)


@register_attention("full", FullOptions, causal=True)
class CausalFullAttention(BaseAttention):
    """Full attention of a decoder to all tokens so far, with the outputs of fairseq's `MultiheadAttention` but for
    rounding, and for those of padding, which sees other padding.

    It is computed by torch's fused kernel, without a mask unless padding comes before a token. A search keeps the keys
    and values of all tokens so far.

    Args:
        args, options: as `BaseAttention` and fairseq take them; `self_attention` has to be true.

    Raises:
        ValueError: for what no kind supports, and cross-attention.
    """

    causal = True

    def moves(self, padding: Padding) -> Moves:
        return "nothing"

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        assert call.key is not None
        assert call.value is not None
        query, key, value = self.q_proj(call.query), self.k_proj(call.key), self.v_proj(call.value)
        query, key, value = self.split_heads(query), self.split_heads(key), self.split_heads(value)
        padding, cached = call.padding, self.cached(call.incremental_state)
        tokens, past = None if padding is None else padding.tokens, PastTokens(key, value)
        if cached:
            tokens = _joined(cached["tokens"], tokens, cached["past"].keys.size(2), key)
            past = cached["past"].with_tokens(key, value)
            key, value = past.keys, past.values
        if call.incremental_state is not None:
            self.cache(call.incremental_state, {"past": past, "tokens": tokens})
        in_one_pass = not cached and (padding is None or padding.order is None)
        mask = None if in_one_pass else _seen(query.size(2), key, tokens)
        dropout = self.dropout_probability
        out, weights = softmax_attention(query, key, value, mask, dropout, call.need_weights, in_one_pass)
        if weights is not None and tokens is not None:
            weights = weights.masked_fill(~tokens[:, None, None], 0.0)
        return out, weights

    def reordered(self, cached: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        tokens = None if cached["tokens"] is None else cached["tokens"].index_select(0, new_order)
        return {"past": cached["past"].reordered(new_order), "tokens": tokens}


def _joined(past: Tensor | None, own: Tensor | None, before: int, key: Tensor) -> Tensor | None:
    """Where there are tokens and no padding, (B, n), among so many and those of the keys after them; None for
    everywhere."""
    if past is None and own is None:
        return None
    past = key.new_ones(len(key), before, dtype=torch.bool) if past is None else past
    own = key.new_ones(len(key), key.size(2), dtype=torch.bool) if own is None else own
    return torch.cat([past, own], 1)


def _seen(queries: int, keys: Tensor, tokens: Tensor | None) -> Tensor | None:
    """Which keys (B, H, n, d) each of the last queries sees, (1 or B, 1, T, n), its own among them; None for all."""
    if queries == 1 and tokens is None:
        return None
    n = keys.size(2)
    past = torch.ones(queries, n, dtype=torch.bool, device=keys.device).tril(n - queries)
    if tokens is None:
        return past
    return past & (tokens[:, None, None] | past.triu(n - queries))
