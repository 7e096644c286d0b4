"""Scores, and attention as fairseq's Transformer has it: the softmax of all scores.

Shapes: B sentences, H heads, T queries, s keys, d features of a head.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.precision import at_least_float32, softmax

_NUMBERS_OF_MANY_KEYS = 1 << 17


def scores(query: Tensor, key: Tensor) -> Tensor:
    """The scores Q Kᵀ / √d (..., T, n) of queries (..., T, d) and keys (..., n, d) in at least float32.

    Half precision ends at 65,504, which scores may exceed.
    """
    wide = at_least_float32(query.dtype)
    with torch.autocast(query.device.type, enabled=False):
        return (query.to(wide) * query.size(-1) ** -0.5) @ key.to(wide).transpose(-2, -1)


def softmax_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    mask: Tensor | None,
    dropout: float,
    need_weights: bool,
    causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Plain attention: what each head gives, (B, H, T, d), and the probabilities of its keys before dropout,
    (B, H, T, s), in at least float32, if weights are needed.

    Args:
        query: (B, H, T, d), not scaled.
        keys, values: (B, H, s, d).
        mask: as (B, H, T, s), true where a key takes part, or numbers that are added to scores; None for neither.
        dropout: the share of probabilities that are dropped.
        causal: whether a query sees only the keys up to its own place; then there is no mask.
    """
    if not (need_weights or _is_faster_in_parts(query, keys)):
        return F.scaled_dot_product_attention(query, keys, values, mask, dropout, is_causal=causal), None
    found = scores(query, keys)
    if causal:
        mask = torch.ones(found.shape[2:], dtype=torch.bool, device=found.device).tril()
    if mask is not None:
        found = found.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else found.add_(mask)
    probabilities = softmax(found)
    out = F.dropout(probabilities, dropout).type_as(values) @ values
    return out, probabilities if need_weights else None


def _is_faster_in_parts(query: Tensor, keys: Tensor) -> bool:
    """Whether attention is faster in products and a softmax than fused: for one query to many keys, on a processor."""
    if query.size(2) != 1 or query.device.type != "cpu" or keys.numel() <= _NUMBERS_OF_MANY_KEYS:
        return False
    return query.dtype == at_least_float32(query.dtype)
