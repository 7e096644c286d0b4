"""Attention to a window of neighbouring tokens alone, in encoders and decoders."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import BaseAttention, Call
from linformer_fairseq.modules.ops.sliding_window import SlidingWindow, window_attention
from linformer_fairseq.modules.ops.token_weights import without_padding
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention


@dataclass
class WindowOptions(AttentionOptions):
    """The options of attention to a window: how many tokens it has."""

    uses_k = False

    linformer_window_size: int = field(
        default=64,
        metadata={
            "help": "window: tokens that a query attends to, w: in the encoder w/2 to either side of its own, in the "
            "decoder the last w with its own"
        },
    )

    def validate(self) -> None:
        super().validate()
        _check_size(self.linformer_window_size)

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        return [{"window_size": self.linformer_window_size}] * len(layers.projected_dims)


@register_attention(
    "window",
    WindowOptions,
    "neighbouring tokens alone, which needs no k",
    defaults={"linformer_attention": "encoder,decoder"},
    self_attention_only=True,
)
class WindowAttention(BaseAttention):
    """Attention of an encoder to a window of neighbouring tokens, a drop-in for fairseq's `MultiheadAttention` without
    parameters of its own.

    Token i attends to the tokens i - w/2 ... i + w/2 of its sentence (w/2 is rounded down), the sliding window of
    Longformer (Beltagy et al., 2020, section 3.1). It costs O(T w) for T tokens.

    Args:
        args, options: as `BaseAttention` and fairseq take them; `self_attention` has to be true.
        window_size: w.

    Raises:
        ValueError: for what no kind supports, cross-attention, and w < 1.
    """

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, window_size: int, **options: Any) -> None:
        _check_size(window_size)
        super().__init__(embed_dim, num_heads, *args, **options)
        if not self.self_attention:
            raise ValueError(f"{type(self).__name__} is self-attention; pass self_attention=True")
        self.window_size = window_size
        half = window_size // 2
        self.window = SlidingWindow(window_size - 1, 0) if self.causal else SlidingWindow(half, half)

    def extra_repr(self) -> str:
        return f"window_size={self.window_size}"

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        query, key, value = self._heads(call)
        padding = None if call.padding is None else call.padding.mask
        dropout, need_weights = self.dropout_probability, call.need_weights
        out, weights = window_attention(query, key, value, self.window, padding, dropout, need_weights)
        return out, None if weights is None else self.places(call).in_source_order(weights)

    def _heads(self, call: Call) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of each head, (B, H, T, d)."""
        assert call.key is not None
        assert call.value is not None
        query, key, value = self.q_proj(call.query), self.k_proj(call.key), self.v_proj(call.value)
        return self.split_heads(query), self.split_heads(key), self.split_heads(value)


@register_attention("window", WindowOptions, "the last tokens alone, which needs no k", causal=True)
class CausalWindowAttention(WindowAttention):
    """Attention of a decoder to the last w tokens, its own included, a drop-in for fairseq's `MultiheadAttention`
    without parameters of its own.

    It costs O(T w). A search keeps the keys and values of the last w - 1 tokens, whatever the position.

    Args, errors: as those of `WindowAttention`.
    """

    causal = True

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        query, key, value = self._heads(call)
        cached = self.cached(call.incremental_state)
        tokens = cached.get("position", 0) + query.size(2)
        if cached:
            key, value = torch.cat([cached["keys"], key], 2), torch.cat([cached["values"], value], 2)
        if call.incremental_state is not None:
            kept = slice(max(0, key.size(2) - self.window.before), None)
            # copies, as a view would keep all of a long prefix
            keys, values = key[:, :, kept].clone(), value[:, :, kept].clone()
            self.cache(call.incremental_state, {"keys": keys, "values": values, "position": tokens})
        dropout, need_weights = self.dropout_probability, call.need_weights
        out, weights = window_attention(query, key, value, self.window, None, dropout, need_weights)
        if weights is None:
            return out, None
        return out, without_padding(F.pad(weights, (tokens - key.size(2), 0)), call.padding)

    def reordered(self, cached: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        return {name: x.index_select(0, new_order) if isinstance(x, Tensor) else x for name, x in cached.items()}


def _check_size(window_size: int) -> None:
    if window_size < 1:
        raise ValueError(f"--linformer-window-size must be at least 1, not {window_size}")
