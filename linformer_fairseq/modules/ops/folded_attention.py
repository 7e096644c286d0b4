"""Attention to few slots, with the linear layers of queries and output folded into the slots.

    S = (X W_Q + b_Q) K̄ᵀ = X (W_Q K̄ᵀ) + b_Q K̄ᵀ        O = (P V̄) W_O + b_O = P (V̄ W_O) + b_O

Head by head W_Q K̄ᵀ and V̄ W_O have k columns and k rows where W_Q and W_O have d: for k < d, about, and many queries it
is cheaper to give every sentence such matrices of its own than to map every query to d features and back.

Shapes: T queries, B the batch, s slots, C the model width, H heads, d = C/H.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.ops.thresholds import Thresholds


def folding_pays(queries: int, slots: int, heads: int, width: int, limits: Thresholds) -> bool:
    """Whether folding the two linear layers into the slots of a sentence is faster.

    It takes other multiplications, and where these are fast, what is written and read between them counts too: queries
    and what comes out of the heads, or the folded matrices, which are also reordered, and the scores.
    """
    # each times twice the features
    unfolded = queries * width + queries * slots + limits.number_moved * 2 * queries
    folded = limits.folding * slots * width + queries * heads * slots
    folded += limits.number_moved * (4 * heads * slots + 2 * queries * heads * slots // width)
    return folded < unfolded


def folded_attention(
    query: Tensor,
    slot_keys: Tensor,
    slot_values: Tensor,
    slot_mask: Tensor | None,
    q_proj: nn.Linear,
    out_proj: nn.Linear,
    dropout: Callable[[Tensor], Tensor],
) -> Tensor:
    """The output (T, B, C) of both linear layers and the attention between them, with scores in float32 or better.

    Args:
        query: (T, B, C), as it comes.
        slot_keys, slot_values: (B, H, s, d).
        slot_mask: (B, 1, 1, s), true where a slot takes part; None where all do.
        dropout: falls on the probabilities.
    """
    wide = at_least_float32(query.dtype)
    heads, slots, head_dim = slot_keys.shape[1:]
    with torch.autocast(query.device.type, enabled=False):  # scores would be rounded, or be infinite
        keys, weight = slot_keys.to(wide) * head_dim**-0.5, q_proj.weight.to(wide)
        x = query.transpose(0, 1).to(wide)
        query_matrix = _by_head(keys, weight.unflatten(0, (heads, head_dim))).transpose(1, 2)  # (B, C, H s)
        if q_proj.bias is None:
            scores = torch.bmm(x, query_matrix)
        else:
            bias = (keys * q_proj.bias.to(wide).view(heads, 1, head_dim)).sum(-1)
            scores = torch.baddbmm(bias.flatten(1)[:, None], x, query_matrix)
    scores = scores.unflatten(2, (heads, slots))  # (B, T, H, s)
    if slot_mask is not None:
        scores = scores.masked_fill(~slot_mask, -torch.inf)
    probabilities = dropout(torch.softmax(scores, dim=-1)).to(slot_values.dtype).flatten(2)
    out_matrix = _by_head(slot_values, out_proj.weight.t().unflatten(0, (heads, head_dim)))  # (B, H s, C)
    if out_proj.bias is None:
        return torch.bmm(probabilities, out_matrix).transpose(0, 1)
    return torch.baddbmm(out_proj.bias, probabilities, out_matrix).transpose(0, 1)


def _by_head(slots: Tensor, weight: Tensor) -> Tensor:
    """(B, H, s, d) times (H, d, C), head by head: (B, H s, C)."""
    rows = slots.transpose(0, 1).flatten(1, 2)  # (H, B s, d)
    return torch.bmm(rows, weight).unflatten(1, (len(slots), -1)).transpose(0, 1).flatten(1, 2)
