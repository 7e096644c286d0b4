"""Windows of neighbouring tokens, for the queries of a block at a time.

The windows of neighbouring queries overlap, so that a block of q of them needs few more tokens than one query. These
stand next to each other, and a mask leaves to each query its own window: O(T w) for T queries with windows of w tokens,
and nothing has T × n entries.

Shapes: T queries, which are the last of n tokens; m blocks of q queries, with r tokens in the windows of a block; B
sentences, H heads, d features of a head.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.blocks import from_blocks, to_blocks
from linformer_fairseq.modules.ops.precision import softmax
from linformer_fairseq.modules.ops.softmax_attention import scores

_LEAST_BLOCK = 16  # the fewest queries of a block, where there are as many
_ALIGNED = 8  # r is a multiple of this, as the masks of torch's fused kernels on a GPU have to be


class SlidingWindow(NamedTuple):
    """What a query sees: its own token, and so many before and after it."""

    before: int
    after: int

    def tokens(self, block: int) -> int:
        """r."""
        return -(-(self.before + block + self.after) // _ALIGNED) * _ALIGNED

    def padded(self, x: Tensor, queries: int, block: int) -> Tensor:
        """`x` (..., n, d) with zeros for what blocks see before and after it, from what the first query sees on."""
        missing = self.before - (x.size(-2) - queries)
        last = (-(-queries // block) - 1) * block  # where the last block begins
        return F.pad(x, (0, 0, missing, last + self.tokens(block) - self.before - queries))

    def of_blocks(self, padded: Tensor, block: int) -> Tensor:
        """The tokens in the windows of each block, (m, ..., r, d)."""
        return padded.unfold(-2, self.tokens(block), block).movedim(-3, 0).transpose(-2, -1)

    def mask(self, seen: Tensor, queries: int, block: int) -> Tensor:
        """Which tokens a query sees of those that others may see, `seen` (B, n): (m, B, q, r). It sees its own."""
        columns = torch.arange(self.tokens(block), device=seen.device)
        offset = columns - torch.arange(self.before, self.before + block, device=seen.device)[:, None]  # from its own
        inside = (offset >= -self.before) & (offset <= self.after)
        real = self.of_blocks(self.padded(seen[:, :, None], queries, block), block).transpose(2, 3)  # (m, B, 1, r)
        return inside & real | (offset == 0)

    def over_tokens(self, x: Tensor, tokens: int, queries: int) -> Tensor:
        """Moves what the queries of blocks have for these tokens, (m, ..., q, r), to all n tokens, (..., T, n)."""
        blocks, block, width = len(x), *x.shape[-2:]
        places = torch.arange(0, blocks * block, block, device=x.device)[:, None] + torch.arange(width, device=x.device)
        places = places.view(blocks, *[1] * (x.dim() - 2), width)
        out = x.new_zeros(*x.shape[:-1], (blocks - 1) * block + width).scatter(-1, places.expand_as(x), x)
        start = self.before - (tokens - queries)  # the place of the first token
        return from_blocks(F.pad(out, (-start, start + tokens - out.size(-1))), queries)


def window_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    window: SlidingWindow,
    padding: Tensor | None = None,
    dropout: float = 0.0,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attends from every query to the tokens of its window.

    Args:
        query: (B, H, T, d).
        key, value: (B, H, n, d), n >= T; the queries are of the last T tokens.
        padding: (B, n), true at tokens that no other token sees; None where there are none of these.
        dropout: the share of probabilities that are dropped.
        need_weights: return the weights, (B, H, T, n), in at least float32.
    """
    queries, tokens = query.size(2), key.size(2)
    if queries == 1 and not (window.after or need_weights):  # a step of a search
        near = slice(-window.before - 1, None)
        return F.scaled_dot_product_attention(query, key[:, :, near], value[:, :, near], dropout_p=dropout), None
    block = min(queries, max(_LEAST_BLOCK, (window.before + 1 + window.after) // 2))
    q = to_blocks(query, block).flatten(0, 1)  # (m B, H, q, d)
    keys, values = (window.of_blocks(window.padded(x, queries, block), block).flatten(0, 1) for x in (key, value))
    seen = torch.ones(1, tokens, dtype=torch.bool, device=query.device) if padding is None else ~padding
    mask = window.mask(seen, queries, block).expand(-1, len(query), -1, -1).flatten(0, 1)[:, None]
    out = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask, dropout_p=dropout)
    out = from_blocks(out.unflatten(0, (-1, len(query))), queries)
    if not need_weights:
        return out, None
    weights = softmax(scores(q, keys).masked_fill(~mask, -torch.inf)).unflatten(0, (-1, len(query)))
    return out, window.over_tokens(weights, tokens, queries)
