"""Linformer attention of short sentences, with E and F applied to scores over tokens instead of the tokens.

    S = (Q Kᵀ) Eᵀ        O = (softmax(S / √d) F) V + b_V        K = X W_K, V = X W_V

It is the same sum in another order, without slot keys and slot values. For as many queries as tokens, and fewer tokens
than slots, it multiplies less where n < 2 k d / (k + d): k slots of every feature are then more to compute than scores
over n tokens and k slots for every head. The key bias adds the same to all scores of a query and drops out of the
softmax; the value bias comes last, times what dropout leaves of the probabilities.

Shapes: T queries, n tokens, B the batch, s slots, C the model width, H heads, d = C/H.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.precision import at_least_float32


def projected_scores_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_matrix: Tensor,
    value_matrix: Tensor,
    value_bias: Tensor | None,
    slot_mask: Tensor | None,
    dropout: float,
) -> Tensor:
    """Attention before the output layer, (T, B, C), with scores in float32 or better.

    Args:
        query: (T, B, H, d), times 1/√d.
        key, value: (n, B, H, d), without their biases and zero at padded positions.
        key_matrix, value_matrix: E and F, (s, n).
        value_bias: (C,).
        slot_mask: (B, 1, 1, s), true where a slot takes part; None where all do.
        dropout: the share of probabilities that are dropped.
    """
    wide, values_type = at_least_float32(query.dtype), value.dtype
    batch, heads, head_dim = key.shape[1:]
    query, key, value = (x.flatten(1, 2).transpose(0, 1) for x in (query, key, value))  # (B H, T or n, d)
    with torch.autocast(query.device.type, enabled=False):  # scores would be rounded, or be infinite
        scores = torch.bmm(query.to(wide), key.to(wide).transpose(1, 2))
        scores = F.linear(scores, key_matrix.to(wide)).unflatten(0, (batch, heads))
    if slot_mask is not None:
        scores = scores.masked_fill(~slot_mask, -torch.inf)
    probabilities = F.dropout(torch.softmax(scores, dim=-1), dropout).to(values_type)  # (B, H, T, s)
    over_tokens = (probabilities @ value_matrix).flatten(0, 1)
    out = torch.bmm(over_tokens, value).transpose(0, 1).flatten(1)  # (T, B C), a copy that may be changed in place
    if value_bias is not None:
        biases = value_bias.repeat(batch)
        if dropout > 0:
            left = probabilities.sum(-1).permute(2, 0, 1).unsqueeze(-1)  # (T, B, H, 1)
            biases = (left * value_bias.view(heads, head_dim)).flatten(1)
        out = out.add_(biases)
    return out.unflatten(1, (batch, heads * head_dim))
