"""Causal attention in two levels: to the last tokens one by one, and to all before them in two levels.

Shapes: T queries and tokens, B sentences, H heads, X = B H, d features per head, Y blocks of q queries, s windows of w
tokens. A block sees c windows by their means, and l by their tokens: L = c + l w rows.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import Call, scores
from linformer_fairseq.modules.ops.blocks import in_blocks
from linformer_fairseq.modules.ops.token_weights import without_padding
from linformer_fairseq.modules.registry import register_attention
from linformer_fairseq.modules.two_level.arithmetic import (
    TokenTable,
    WindowSummaries,
    attend_in_full,
    ranges_of,
    ranked,
    weights_over_tokens,
    worth_of_windows,
)
from linformer_fairseq.modules.two_level.attention import BaseTwoLevelAttention
from linformer_fairseq.modules.two_level.sizes import Sizes, TwoLevelOptions
from linformer_fairseq.modules.two_level.steps import TargetState, attend_in_steps


class CausalTwoLevelOptions(TwoLevelOptions):
    """The options of two-level attention in a decoder, whose sizes follow from the longest text."""

    needs_length = True


@register_attention("two-level", CausalTwoLevelOptions, causal=True)
class CausalTwoLevelAttention(BaseTwoLevelAttention):
    r"""Causal attention in two levels: in a decoder a drop-in for fairseq's `MultiheadAttention`, with its parameters.

    A block of q queries attends one by one to its own tokens, as far as they are past, and to the window of w tokens
    before it. The windows that end before that one it sees in two levels: by their means, or, of the m windows that its
    first query and the q - 1 before it attend to most, by their tokens. A window enters only when all its tokens are
    past, so that its mean knows nothing of what comes:

        out = softmax([Q K̄ᵀ / √d + log w, Q K_oᵀ / √d]) [V̄; V_o]    o: tokens of the m opened windows, of the window
                                                                        before, and of the block up to the query

    The first `exact_below` tokens get full attention, and so do as many as it takes to have m windows.

    It costs O(T (N / w + m w + q)), and a step of a search O(N / w + m w + q) at any position: keys and values stay
    where they are, and those attended to are gathered.

    Args:
        args, options: as `BaseAttention` and fairseq take them; `self_attention` has to be true.
        projected_dim: k, the number of windows of N tokens, unless `slot_width` is given.
        max_positions: N, which the sizes follow from; targets may be longer.
        open_slots, slot_width, block_size: m, w and q; by default they follow from N and k, as `SizeRule` says. Blocks
            are rounded up to whole windows.
        exact_below: how many first tokens get full attention, at least.

    Raises:
        ValueError: for what no kind supports, cross-attention, and k, m, w or q below 1.
    """

    causal = True

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, max_positions: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, *args, **options)
        width, opened, block = self.rule.cut(max_positions)
        block = -(-block // width) * width
        self.sizes = Sizes(width, opened, block)
        # whole blocks, and as many as it takes that every later one has m windows to open
        self.exact = -(-max(self.rule.exact_below, (opened + 1) * width) // block) * block

    def extra_repr(self) -> str:
        width, opened, block = self.sizes
        return f"slot_width={width}, open_slots={opened}, block_size={block}, exact={self.exact}"

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        assert call.key is not None
        assert call.value is not None
        state = call.incremental_state
        search: TargetState | None = self.cached(state).get("search")
        q, k, v = self.q_proj(call.query), self.k_proj(call.key), self.v_proj(call.value)
        q, k, v, dropout = self.heads(q), self.heads(k), self.heads(v), self.dropout_probability
        if search is None:
            out, weights = causal_two_level_attention(q, k, v, self.sizes, self.exact, dropout, call.need_weights)
            if state is not None:
                search = TargetState.begin(q, k, v, self.sizes, self.exact)
        else:
            out, weights, search = attend_in_steps(search, (q, k, v), dropout, call.need_weights)
        if state is not None:
            self.cache(state, {"search": search})
        return out, None if weights is None else without_padding(weights, call.padding)


def causal_two_level_attention(
    query: Tensor, key: Tensor, value: Tensor, sizes: Sizes, exact: int, dropout: float, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """What each head gives, (B, H, T, d), and the weights (B, H, T, T) in float32 or better if they are needed.

    Args:
        query, key, value: (T, B, H, d), the queries not scaled.
        sizes: q is a multiple of w.
        exact: how many first tokens get full attention, whole blocks.
        dropout: the share of probabilities that are dropped.
    """
    length, heads, width = len(query), query.shape[1:3], sizes.width
    k, v = (x[:exact].permute(1, 2, 0, 3) for x in (key, value))
    out, weights = attend_in_full(query[:exact], TokenTable(k, v, None), dropout, need_weights, causal=True)
    if length <= exact:
        return out, weights
    blocks = blocks_after(query, key, sizes, exact)
    keys, values = (blocks.rows(x, sizes) for x in (key, value))
    later = F.scaled_dot_product_attention(blocks.queries, keys, values, attn_mask=blocks.bias, dropout_p=dropout)
    later = later.transpose(1, 2).flatten(0, 1)[: length - exact].unflatten(1, heads)
    out = torch.cat([out.permute(2, 0, 1, 3), later]).permute(1, 2, 0, 3)
    if weights is not None:
        shares = torch.softmax(scores(blocks.queries, keys) + blocks.bias, 3)
        of_means, of_tokens = shares.split([blocks.closed.size(2), blocks.near.size(2) * width], 3)
        windows = (exact + len(shares) * sizes.block) // width
        of_later = weights_over_tokens(of_means, of_tokens, blocks.closed, blocks.near, windows, width)
        of_later = of_later.transpose(0, 1).flatten(1, 2)[:, : length - exact, :length].unflatten(0, heads)
        weights = torch.cat([F.pad(weights, (0, length - exact)), of_later], 2)
    return out, weights


class LaterBlocks(NamedTuple):
    """The blocks after the first tokens, and what they attend to."""

    queries: Tensor  # (Y, X, q, d)
    closed: Tensor  # the windows seen by their means, (Y, X, c), those worth most first; the last may not be past
    near: Tensor  # the windows seen by their tokens, (Y, X, l): m opened ones, the one before the block, and its own
    bias: Tensor  # added to scores, (Y, 1, q, L): log w for means, 0 for tokens, and -inf for what is not past

    def rows(self, x: Tensor, sizes: Sizes) -> Tensor:
        """The keys or values `x` (T, B, H, d) that blocks attend to, (Y, X, L, d)."""
        windows = in_blocks(x.flatten(1, 2), sizes.block, 0).flatten(0, 1).unflatten(0, (-1, sizes.width))
        means = windows[: self.closed.size(2) + sizes.opened].mean(1)
        tokens = _gathered(windows.permute(2, 0, 1, 3), self.near).flatten(2, 3)
        return torch.cat([_gathered(means.transpose(0, 1), self.closed), tokens], 2)


def blocks_after(query: Tensor, key: Tensor, sizes: Sizes, exact: int) -> LaterBlocks:
    """The blocks of the queries (T, B, H, d) after the first ones.

    The means of closed windows come in the order of their worth, and those of windows that are not yet past come last:
    what is hidden is then alike for all heads and sentences.
    """
    (width, opened, block), device = sizes, query.device
    queries = in_blocks(query.flatten(1, 2), block, 0)
    last = (len(queries) - 1) * block  # where the last block begins
    past = range(exact // width - 1, (last + block) // width - 1, block // width)  # windows in time for a block
    with torch.no_grad():
        windows = key[: past[-1] * width].unflatten(0, (-1, width)).permute(2, 3, 0, 1, 4)
        summaries = WindowSummaries(windows.mean(3), ranges_of(windows), None)
        choosing = query[exact - block + 1 : last + 1]
        best = ranked(worth_of_windows(choosing, summaries, block, past=past)).flatten(0, 1).transpose(0, 1)
    ends = torch.arange(past.start, past.stop, past.step, device=device)[:, None]
    near = (ends + torch.arange(1 + block // width, device=device))[:, None].expand(-1, best.size(1), -1)
    near, closed = torch.cat([best[..., :opened], near], 2), best[..., opened:]
    ahead = torch.arange(closed.size(2), device=device) >= ends - opened
    of_means = torch.full_like(ahead, math.log(width), dtype=query.dtype).masked_fill(ahead, -torch.inf)
    future = torch.ones(block, block, dtype=torch.bool, device=device).triu(1)
    of_tokens = torch.zeros_like(future, dtype=query.dtype).masked_fill(future, -torch.inf)
    of_tokens = F.pad(of_tokens, (near.size(2) * width - block, 0)).expand(len(past), -1, -1)
    bias = torch.cat([of_means[:, None].expand(-1, block, -1), of_tokens], 2)[:, None]
    return LaterBlocks(queries[exact // block :].transpose(1, 2), closed, near, bias)


def _gathered(x: Tensor, index: Tensor) -> Tensor:
    """Rows (s, ...) of each sequence, (X, s, ...), by their numbers (Y, X, c): (Y, X, c, ...)."""
    firsts = torch.arange(0, x.size(0) * x.size(1), x.size(1), device=x.device)
    rows = x.flatten(0, 1).flatten(1).index_select(0, (index + firsts[:, None]).flatten())
    return rows.view(*index.shape, *x.shape[2:])
