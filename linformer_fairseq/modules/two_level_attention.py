"""Attention in two levels: to the tokens of a query's best windows one by one, and to the means of all others."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.ops.padding import sentence_lengths
from linformer_fairseq.modules.ops.sentence_products import apply_matrix
from linformer_fairseq.modules.ops.two_level import (
    TwoLevelSource,
    share_evenly,
    two_level_attention,
    two_level_attention_with_weights,
)
from linformer_fairseq.modules.ops.windows import Windows, even_windows, window_means
from linformer_fairseq.modules.projections import check_dims
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention
from linformer_fairseq.modules.source_attention import Source, SourceAttention

OPEN_SLOTS = 3
"""Windows that a query opens, unless told otherwise."""


@dataclass
class TwoLevelOptions(AttentionOptions):
    """How many windows a query opens."""

    linformer_open_slots: int = field(
        default=OPEN_SLOTS,
        metadata={"help": "two-level: slots that a query opens, to attend to their tokens one by one"},
    )

    def validate(self) -> None:
        super().validate()
        if self.linformer_open_slots < 1:
            raise ValueError(f"--linformer-open-slots must be at least 1, not {self.linformer_open_slots}")

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        return [{**arguments, "open_slots": self.linformer_open_slots} for arguments in super().arguments(layers)]


class Levels(NamedTuple):
    """The tokens of B sentences and the means of their windows, with keys and values for both.

    Where no window has more than one token there are no means: s = 0.
    """

    keys: Tensor
    """Keys of the s means, followed by those of the n tokens, (B, H, s + n, d)."""
    values: Tensor
    """Values in the same order, (B, H, s + n, d)."""
    windows: Tensor
    """The window of each token, (B, n)."""
    sizes: Tensor
    """The tokens of each window, (B, s)."""
    padding_mask: Tensor | None
    """(B, n or more), true at padded positions; None where there are none and no weights will be asked for."""
    lengths: Tensor
    """Tokens of each sentence, (B,)."""


@register_attention(
    "two-level",
    TwoLevelOptions,
    "means of n/k neighbours, and every query attends to the tokens of its best slots one by one",
)
class TwoLevelAttention(SourceAttention[Levels]):
    r"""Attention in two levels, a drop-in for fairseq's `MultiheadAttention` without parameters of its own.

    A sentence of n tokens is cut into k windows. To a query a window stands for its w tokens by their mean K̄, V̄, hence
    the log w; each query opens its best m windows and attends to their tokens instead:

        S̄ = Q K̄ᵀ / √d + log w         scores of the windows, of which each query opens the best m
        S = Q Kᵀ / √d                  scores of the tokens in opened windows
        out = softmax([S̄, S]) [V̄; V]  over the windows that stay closed and the tokens of the opened ones

    It costs O(T (k + m n / k)) for T queries, and is full attention where n <= k or all windows are opened. More than
    k² tokens are first pooled to k² means, which then stand for tokens.

    Args:
        args, options: as `ProjectedAttention` and fairseq take them.
        projected_dim: k, the number of windows.
        max_positions: N, the longest sentence in tokens.
        open_slots: m, the windows that a query opens.

    Raises:
        ValueError: for what no kind supports, k < 1 or k > N, and m < 1.
    """

    memory_type = Levels

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        projected_dim: int,
        max_positions: int,
        open_slots: int = OPEN_SLOTS,
        **options: Any,
    ) -> None:
        check_dims(projected_dim, max_positions)
        if open_slots < 1:
            raise ValueError(f"the number of slots that a query opens must be at least 1, not {open_slots}")
        super().__init__(embed_dim, num_heads, *args, max_positions=max_positions, **options)
        self.projected_dim = projected_dim
        self.open_slots = open_slots

    def extra_repr(self) -> str:
        return f"k={self.projected_dim}, N={self.max_positions}, open_slots={self.open_slots}"

    def compress(self, source: Source) -> Levels:
        key, value, lengths, k = source.key, source.value, source.lengths, self.projected_dim
        if len(key) > k**2:
            windows = even_windows(len(key), lengths, k**2)
            key, value, lengths = window_means(key, windows), window_means(value, windows), lengths.clamp(max=k**2)
        windows = even_windows(len(key), lengths, k)
        keys, values = self._by_head(self.k_proj, key), self._by_head(self.v_proj, value)
        if len(key) <= k:  # every window is a token
            keys, values = keys.permute(1, 2, 0, 3), values.permute(1, 2, 0, 3)
            windows = Windows(windows.of_tokens, windows.sizes[:, :0])
        else:
            matrix = windows.mean_matrix(key.dtype)
            keys, values = _with_means(matrix, keys), _with_means(matrix, values)
        return Levels(keys, values, *windows, source.padding_mask, lengths)

    def attend_to(
        self, query: Tensor, memory: Levels, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        if not memory.sizes.size(1):
            return self._attend_to_tokens(query, memory, need_weights, by_head)
        source = TwoLevelSource(memory.keys, memory.values, Windows(memory.windows, memory.sizes))
        q, mask = self.queries(query), memory.padding_mask
        if mask is None or not need_weights:
            return self.output(two_level_attention(q, source, self.open_slots, self.dropout_probability)), None
        out, weights = two_level_attention_with_weights(q, source, self.open_slots, self.dropout_probability)
        return self.output(out), self._over_tokens(weights, mask, by_head)

    def _attend_to_tokens(
        self, query: Tensor, memory: Levels, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Full attention, to sentences of at most k tokens."""
        keys, values, padding_mask = memory.keys, memory.values, memory.padding_mask
        mask = None
        if padding_mask is not None:
            tokens = torch.arange(keys.size(2), device=keys.device)
            mask = (tokens < memory.lengths.clamp(min=1)[:, None])[:, None, None]
        if padding_mask is None or not need_weights:
            return self.softmax_attention(query, keys, values, mask), None
        out, weights = self.softmax_attention_with_probabilities(query, keys, values, mask)
        weights = weights.masked_fill(memory.lengths[:, None, None, None] == 0, 0.0)
        return out, self._over_tokens(weights, padding_mask, by_head)

    def _over_tokens(self, weights: Tensor, padding_mask: Tensor, by_head: bool) -> Tensor:
        """The weights (B, H, T, n') of tokens, or of means that stand for several each, as fairseq returns them."""
        n, longest = padding_mask.size(1), min(padding_mask.size(1), self.max_positions)
        if weights.size(3) < longest:
            weights = share_evenly(weights, even_windows(longest, sentence_lengths(padding_mask), weights.size(3)))
        weights = F.pad(weights, (0, n - longest)).transpose(0, 1)
        return weights if by_head else weights.mean(0)

    def _by_head(self, linear: nn.Module, x: Tensor) -> Tensor:
        """(n, B, D) to (n, B, H, d)."""
        return linear(x).unflatten(2, (self.num_heads, self.head_dim))


def _with_means(matrix: Tensor, x: Tensor) -> Tensor:
    """The means of windows and then the tokens: (n, B, H, d) to (B, H, s + n, d)."""
    return torch.cat([apply_matrix(matrix, x), x.permute(1, 2, 0, 3)], 2)
