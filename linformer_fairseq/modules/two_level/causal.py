"""Causal attention in two levels: to the tokens of a block one by one, and to all blocks before it in two levels.

Shapes: T queries and tokens, B sentences, H heads, X = B H, d features per head, P whole blocks of q tokens, r windows
of w tokens in each, and c groups in each. Y later blocks of queries open m windows, and the one before them.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import Call
from linformer_fairseq.modules.ops.blocks import in_blocks
from linformer_fairseq.modules.ops.key_clusters import largest_power_of_two
from linformer_fairseq.modules.ops.softmax_attention import scores
from linformer_fairseq.modules.ops.token_weights import without_padding
from linformer_fairseq.modules.registry import register_attention
from linformer_fairseq.modules.two_level.arithmetic import (
    CHOOSING,
    TokenTable,
    attend_in_full,
    blocks_at_a_time,
    choosing_queries,
    rows_of,
    weights_over_tokens,
)
from linformer_fairseq.modules.two_level.attention import BaseTwoLevelAttention
from linformer_fairseq.modules.two_level.groups import choose, in_text, labels_of, means_of_groups, tokens_of_groups
from linformer_fairseq.modules.two_level.sizes import Sizes, TwoLevelOptions
from linformer_fairseq.modules.two_level.steps import TargetState, attend_in_steps


class CausalTwoLevelOptions(TwoLevelOptions):
    """The options of two-level attention in a decoder, whose sizes follow from the longest text."""

    needs_length = follows_length = True


@register_attention("two-level", CausalTwoLevelOptions, causal=True)
class CausalTwoLevelAttention(BaseTwoLevelAttention):
    r"""Causal attention in two levels: in a decoder a drop-in for fairseq's `MultiheadAttention`, with its parameters.

    A block of q queries attends one by one to its own tokens, as far as they are past, to the window of w tokens before
    it, and to the m windows that its first query and the 7 before it attend to most. All other tokens of the blocks
    before it are seen by the means of groups of tokens with similar keys, of which each block has up to 2 q / w:

        out = softmax([Q K̄ᵀ / √d + β, Q K_oᵀ / √d]) [V̄; V_o]    o: tokens of opened windows, and of the block up to
                                                                     the query

    β is what makes a mean K̄, V̄ of all tokens of a group weigh as much as those that are not opened, averaged over the
    queries that choose (`TwoLevelAttention`). A block's groups enter only after its end, so that their means know
    nothing of what comes. The first `exact_below` tokens get full attention, and so do as many as it takes to have m +
    1 windows.

    It costs O(T (N / w + m w + q + N / q)), and a step of a search beyond the first tokens O(N / w + m w + q), but for
    the first step of a block, which compares its queries with all tokens and gathers what the block reads.

    Args:
        args, options: as `BaseAttention` and fairseq take them; `self_attention` has to be true.
        projected_dim: k, the number of windows of N tokens, unless `slot_width` is given.
        max_positions: N, which the sizes follow from; targets may be longer.
        open_slots, slot_width, block_size: m, w and q; by default they follow from N and k, as `SizeRule` says. Blocks
            are rounded up to whole windows.
        defaults: what sizes that are not given follow from, by place, and whether groups are windows instead.
        exact_below: how many first tokens get full attention, at least.

    Raises:
        ValueError: for what no kind supports, cross-attention, and k, m, w or q below 1.
    """

    causal = True

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, max_positions: int, **options: Any) -> None:
        super().__init__(embed_dim, num_heads, *args, **options)
        width, opened, block, _ = self.rule.cut(max_positions)
        block = -(-block // width) * width
        # of two tokens or more
        clusters = min(self.rule.clusters(block // width), largest_power_of_two(max(1, block // 2)))
        clusters = clusters and math.gcd(clusters, block)  # equally large ones
        self.sizes = Sizes(width, opened, block, clusters)
        # whole blocks, and as many as it takes that every later one has m windows to open
        self.exact = -(-max(self.rule.exact_below, (opened + 1) * width) // block) * block

    def extra_repr(self) -> str:
        width, opened, block, clusters = self.sizes
        sizes = f"slot_width={width}, open_slots={opened}, block_size={block}, clusters={clusters}"
        return f"{sizes}, exact={self.exact}"

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
    length, heads, (width, _, block, _) = len(query), query.shape[1:3], sizes
    k, v = (x[:exact].permute(1, 2, 0, 3) for x in (key, value))
    out, weights = attend_in_full(query[:exact], TokenTable(k, v, None), dropout, need_weights, causal=True)
    if length <= exact:
        return out, weights
    queries, keys, values = (in_blocks(x.flatten(1, 2), block, 0).permute(2, 0, 1, 3) for x in (query, key, value))
    later = slice(exact // block, None)
    past_keys, past_values = (x[:, :-1].contiguous() for x in (keys, values))  # (X, P, q, d)
    tokens = in_text(tokens_of_groups(past_keys, sizes), sizes)

    mean_keys, mean_values = (means_of_groups(x.flatten(1, 2), tokens) for x in (past_keys, past_values))
    opened, of_groups = choices(query, past_keys.flatten(1, 2), mean_keys, tokens, sizes, exact)

    def rows(x: Tensor, past: Tensor, means: Tensor) -> Tensor:
        windows = past.view(len(past), -1, width * past.size(3))
        windows = rows_of(windows, opened).unflatten(3, (width, -1)).flatten(2, 3)
        means = means.expand(len(opened), -1, -1, -1)
        return torch.cat([means, windows, x[:, later].transpose(0, 1)], 2)

    rows_of_keys, rows_of_values = rows(keys, past_keys, mean_keys), rows(values, past_values, mean_values)
    future = torch.ones(block, block, dtype=torch.bool, device=query.device).triu(1)
    of_tokens = torch.zeros_like(future, dtype=query.dtype).masked_fill(future, -torch.inf)
    of_tokens = F.pad(of_tokens, (opened.size(2) * width, 0)).expand(*opened.shape[:2], -1, -1)
    bias = torch.cat([of_groups[:, :, None].expand(-1, -1, block, -1), of_tokens], 3)
    queries = queries[:, later].transpose(0, 1)
    found = F.scaled_dot_product_attention(queries, rows_of_keys, rows_of_values, attn_mask=bias, dropout_p=dropout)
    found = found.transpose(1, 2).flatten(0, 1)[: length - exact].unflatten(1, heads)
    out = torch.cat([out.permute(2, 0, 1, 3), found]).permute(1, 2, 0, 3)
    if weights is not None:
        shares = torch.softmax(scores(queries, rows_of_keys) + bias, 3)
        of_later = weights_of_blocks(shares, opened, tokens, sizes, exact)[:, : length - exact, :length]
        weights = torch.cat([F.pad(weights, (0, length - exact)), of_later.unflatten(0, heads)], 2)
    return out, weights


def weights_of_blocks(shares: Tensor, opened: Tensor, tokens: Tensor, sizes: Sizes, exact: int) -> Tensor:
    """The weights over all tokens, those of the last block included, (X, Y q, (P + 1) q).

    Args:
        shares: of the rows of later blocks, which are means, the tokens of windows, and their own, (Y, X, q, L).
        opened: the windows, (Y, X, m + 1).
        tokens: those of groups, (X, P c, l).
        exact: the tokens before these blocks.
    """
    block = sizes.block
    of_past, of_own = shares.split([shares.size(3) - block, block], 3)
    weights = F.pad(weights_over_tokens(of_past, *labels_of(tokens), opened, sizes.width), (0, block))
    own = torch.arange(exact, exact + len(shares) * block, device=shares.device).view(-1, 1, 1, block)
    return weights.scatter(3, own.expand_as(of_own), of_own).transpose(0, 1).flatten(1, 2)


@torch.no_grad()
def choices(
    query: Tensor, keys: Tensor, means: Tensor, tokens: Tensor, sizes: Sizes, exact: int
) -> tuple[Tensor, Tensor]:
    """What each block after the first tokens opens, (Y, X, m + 1), and what is added to the scores of the means of
    groups, (Y, X, G).

    Args:
        query: (T, B, H, d), not scaled.
        keys, means, tokens: of the blocks before the last one, as `choose` takes them.
        exact: how many first tokens get full attention, whole blocks.
    """
    places = choosing_queries(len(query), sizes.block, query.device)[exact // sizes.block :]
    at_a_time = blocks_at_a_time(CHOOSING * keys.size(0) * keys.size(1), query.device)
    opened, biases, end = [], [], exact
    for some in places.split(at_a_time):
        end += len(some) * sizes.block
        seen = end - sizes.block
        groups = seen // tokens.size(2)
        own = query.flatten(1, 2).index_select(0, some.clamp(min=0).flatten()).transpose(0, 1).unflatten(1, some.shape)
        known = keys[:, :seen], means[:, :groups], tokens[:, :groups]
        windows, bias = choose(own, *known, sizes, some[:, -1], some >= 0)
        opened.append(windows)
        biases.append(F.pad(bias, (0, tokens.size(1) - groups), value=-torch.inf))
    return torch.cat(opened, 1).transpose(0, 1), torch.cat(biases, 1).transpose(0, 1)
