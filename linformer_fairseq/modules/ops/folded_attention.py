"""Attention to few slots, with the linear layers of queries and output folded into the slots.

    S = (X W_Q + b_Q) K̄ᵀ = X (W_Q K̄ᵀ) + b_Q K̄ᵀ        O = (P V̄) W_O + b_O = P (V̄ W_O) + b_O

Head by head W_Q K̄ᵀ and V̄ W_O have k columns and k rows where W_Q and W_O have d: for k < d, about, and many queries it
is cheaper to give every sentence such matrices of its own than to map every query to d features and back.

Shapes: T queries, B the batch, s slots, C the model width, H heads, d = C/H.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def folding_pays(queries: int, slots: int, heads: int, width: int) -> bool:
    """Whether folding the two linear layers into the slots of a sentence is faster.

    The multiplications that fold them count twice, as the matrices that they make are also written, reordered and read
    again. With that the rule agreed with what was timed on a CPU at 16, 32 and 64 slots.
    """
    unfolded = queries * width + queries * slots
    folded = 2 * slots * width + queries * heads * slots
    return folded < unfolded  # each times the features that go in and come out


def folded_attention(
    query: Tensor,
    slot_keys: Tensor,
    slot_values: Tensor,
    slot_mask: Tensor | None,
    q_proj: nn.Linear,
    out_proj: nn.Linear,
    dropout: Callable[[Tensor], Tensor],
) -> Tensor:
    """The output (T, B, C) of both linear layers and the attention between them.

    Args:
        query: (T, B, C), as it comes.
        slot_keys, slot_values: (B, H, s, d).
        slot_mask: (B, 1, 1, s), true where a slot takes part; None where all do.
        dropout: falls on the probabilities.
    """
    heads, slots, head_dim = slot_keys.shape[1:]
    slot_keys = slot_keys * head_dim**-0.5
    x = query.transpose(0, 1)
    query_matrix = _by_head(slot_keys, q_proj.weight.unflatten(0, (heads, head_dim))).transpose(1, 2)  # (B, C, H s)
    if q_proj.bias is None:
        scores = torch.bmm(x, query_matrix)
    else:
        bias = (slot_keys * q_proj.bias.view(heads, 1, head_dim)).sum(-1)
        scores = torch.baddbmm(bias.flatten(1)[:, None], x, query_matrix)
    scores = scores.unflatten(2, (heads, slots))  # (B, T, H, s)
    if slot_mask is not None:
        scores = scores.masked_fill(~slot_mask, -torch.inf)
    probabilities = dropout(torch.softmax(scores, dim=-1)).flatten(2)
    out_matrix = _by_head(slot_values, out_proj.weight.t().unflatten(0, (heads, head_dim)))  # (B, H s, C)
    if out_proj.bias is None:
        return torch.bmm(probabilities, out_matrix).transpose(0, 1)
    return torch.baddbmm(out_proj.bias, probabilities, out_matrix).transpose(0, 1)


def _by_head(slots: Tensor, weight: Tensor) -> Tensor:
    """(B, H, s, d) times (H, d, C), head by head: (B, H s, C)."""
    rows = slots.transpose(0, 1).flatten(1, 2)  # (H, B s, d)
    return torch.bmm(rows, weight).unflatten(1, (len(slots), -1)).transpose(0, 1).flatten(1, 2)
