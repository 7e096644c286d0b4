"""Attention of every query to a window of tokens of its own, in blocks of queries that share their keys.

The windows of neighbouring queries overlap, so that a block of q of them needs few more than w + q tokens. These are
gathered, and a mask leaves to each query its own window: O(T w) for T queries of windows of w tokens, and nothing has
T × n entries.

Shapes: T queries, n tokens, B sentences, h hypotheses that share each of them, H heads, d features of a head.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.precision import scores, softmax

LEAST_BLOCK = 16
"""The fewest queries of a block, where there are as many."""
ALIGNED = 8
"""The keys of a block are a multiple of this, which the masks of torch's fused kernels on a GPU have to be."""


class Windows(NamedTuple):
    """The window of every query."""

    starts: Tensor
    """The first token, which may lie before the sentence, (T, B), or (T, 1) where all sentences have the same windows;
    it never falls from one query to the next."""
    width: int
    """w, tokens of a window; those beyond the ends of the sentence are left out."""
    pace: float
    """By how many tokens windows move on with each query, at most and on average."""
    lengths: Tensor | None
    """Tokens of each sentence, (B,); None where all have n."""


class Blocks(NamedTuple):
    """The windows of blocks of queries. A is B, or 1 where it is the same for all sentences."""

    size: int
    """q, queries of a block."""
    tokens: Tensor
    """The tokens that a block gathers, (A, blocks, r)."""
    mask: Tensor
    """Which of them are in the window of each query, (A, blocks, q, r); all of them where the window is empty."""
    empty: Tensor | None
    """Which windows have no token, (A, blocks, q, 1); None where no sentence is padded, as there is no such window."""


def window_attention(query: Tensor, key: Tensor, value: Tensor, windows: Windows, dropout: float = 0.0) -> Tensor:
    """Attends from every query to the tokens of its window; zero where it has none.

    Args:
        query: (T, B h, H, d), of which the hypotheses of a sentence stand side by side.
        key, value: (n, B, H, d).
        dropout: the share of probabilities that are dropped.

    Returns:
        (T, B h, H, d).
    """
    if not query.numel() or not len(key):
        return query * 0.0
    blocks = _blocks(len(query), len(key), windows)
    keys, values = _of_blocks(key, blocks), _of_blocks(value, blocks)
    mask = _rows(blocks.mask, query, key)
    out = F.scaled_dot_product_attention(_queries(query, key, blocks), keys, values, attn_mask=mask, dropout_p=dropout)
    if blocks.empty is not None:
        out = out.masked_fill(_rows(blocks.empty, query, key), 0.0)
    return _in_order(out, query, key, blocks)


def window_probabilities(query: Tensor, key: Tensor, windows: Windows) -> Tensor:
    """The weights that every query gives to all tokens, (B h, H, T, n), in at least float32.

    This has T × n entries for every head, of which all are zero beyond the windows.

    Args:
        query, key: as in `window_attention`.
    """
    length, tokens, heads = len(query), len(key), query.size(2)
    if not query.numel() or not tokens:
        return query.new_zeros(query.size(1), heads, length, tokens)
    blocks = _blocks(length, tokens, windows)
    found = scores(_queries(query, key, blocks), _of_blocks(key, blocks))
    shares = softmax(found.masked_fill(~_rows(blocks.mask, query, key), -torch.inf))
    if blocks.empty is not None:
        shares = shares.masked_fill(_rows(blocks.empty, query, key), 0.0)
    sentences, places = key.size(1), blocks.tokens[:, :, None].expand(-1, -1, blocks.size, -1).flatten(1, 2)[:, :length]
    # (B blocks, H, q h, r) to (B, h, H, T, r)
    shares = shares.unflatten(0, (sentences, -1)).unflatten(3, (blocks.size, -1)).permute(0, 4, 2, 1, 3, 5)
    shares = shares.flatten(3, 4)[:, :, :, :length]
    weights = shares.new_zeros(*shares.shape[:4], tokens)
    return weights.scatter_add(4, places[:, None, None].expand(shares.shape), shares).flatten(0, 1)


def _blocks(queries: int, tokens: int, windows: Windows) -> Blocks:
    """Cuts queries into blocks, about half a window long in tokens: longer ones leave out more of what they gather."""
    starts, width, pace, lengths = windows
    size = min(queries, max(LEAST_BLOCK, int(width / 2 / max(1.0, pace))))
    count = -(-queries // size)
    # queries that fill up the last block have the window of the last one
    numbers = torch.arange(count * size, device=starts.device).clamp(max=queries - 1)
    starts = starts[numbers].t().unflatten(1, (count, size))
    reach = width + math.ceil((size - 1) * pace) + 1  # of all windows of a block, wherever their starts are rounded
    gathered = torch.arange(-(-reach // ALIGNED) * ALIGNED, device=starts.device)
    places = starts[:, :, :1] + gathered
    ends: Tensor | int = tokens if lengths is None else lengths[:, None, None]
    exist = (places >= 0) & (places < ends)
    behind = places[:, :, None] - starts[..., None]
    mask = (behind >= 0) & (behind < width) & exist[:, :, None]
    empty = None
    if lengths is not None:
        empty = ~mask.any(-1, keepdim=True)
        mask = mask | empty  # a softmax of nothing is no number with older torch, nor are its gradients
    return Blocks(size, places.clamp(0, tokens - 1), mask, empty)


def _of_blocks(x: Tensor, blocks: Blocks) -> Tensor:
    """The tokens of every block, (n, B, H, d) to (B blocks, H, r, d)."""
    sentences, heads = x.shape[1:3]
    places = blocks.tokens.flatten(1).t()[..., None].expand(-1, sentences, x[0, 0].numel())
    rows = x.flatten(2).gather(0, places).unflatten(0, blocks.tokens.shape[1:]).unflatten(3, (heads, -1))
    return rows.permute(2, 0, 3, 1, 4).flatten(0, 1)


def _queries(query: Tensor, key: Tensor, blocks: Blocks) -> Tensor:
    """(T, B h, H, d) to (B blocks, H, q h, d)."""
    filled = F.pad(query, (0, 0, 0, 0, 0, 0, 0, -len(query) % blocks.size))
    filled = filled.unflatten(1, (key.size(1), -1)).unflatten(0, (-1, blocks.size))
    return filled.permute(2, 0, 4, 1, 3, 5).flatten(3, 4).flatten(0, 1)


def _in_order(out: Tensor, query: Tensor, key: Tensor, blocks: Blocks) -> Tensor:
    """Undoes `_queries`."""
    out = out.unflatten(0, (key.size(1), -1)).unflatten(3, (blocks.size, -1))
    return out.permute(1, 3, 0, 4, 2, 5).flatten(2, 3).flatten(0, 1)[: len(query)]


def _rows(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """A mask of the queries of blocks, (A, blocks, q, r), for all hypotheses, (B blocks, 1, q h, r)."""
    sentences = key.size(1)
    hypotheses = query.size(1) // sentences
    mask = mask.expand(sentences, -1, -1, -1)
    if hypotheses > 1:
        mask = mask.repeat_interleave(hypotheses, 2)
    return mask.flatten(0, 1)[:, None]
