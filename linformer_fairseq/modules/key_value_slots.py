"""The projected keys and values K̄ = (E X) W_K + b_K and V̄ = (F X) W_V + b_V, in the cheaper order of products.

A projection of the length axis and a linear map of the features commute, (E X) W = E (X W), so that either may come
first:

    slots first     E X and F X, one product of 2k rows, then W_K and W_V on k rows
    tokens first    X W_K and X W_V on n rows, then E and F

`slots_first` counts the multiplications of both. Where the heads share E and F, slots come first for k <= n, which is
where Linformer gains, and tokens for n < k, where k rows of slots would cost more than the n tokens they come from.
Where every head has its own, slots come first for small k alone, as each head then projects all features.

Short sentences may do without either: `linformer_fairseq.modules.ops.projected_scores`.

Shapes: n tokens, B the batch, s slots, C the model width, H heads, d = C/H, D the features of key and value.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.forward_cache import ForwardCache
from linformer_fairseq.modules.linear_layers import is_plain
from linformer_fairseq.modules.ops.thresholds import Thresholds
from linformer_fairseq.modules.projections import Projection

Pair = tuple[Projection, Projection]
"""E and F."""
Linears = tuple[nn.Linear, nn.Linear]
"""W_K, b_K and W_V, b_V."""


def slots_first(projections: Pair, linears: Linears, n: int, same_tokens: bool) -> bool:
    """Whether E X and F X come before W_K and W_V, for sentences of padded length n.

    Args:
        same_tokens: the keys are the values too.
    """
    keys = projections[0]
    if not keys.is_linear:  # the maximum of all heads is one of tokens, that of every head one of its keys
        return keys.num_heads is None
    if not all(map(is_plain, linears)):  # a layer that does more is called, on slots where heads share them
        return True
    before, after = slot_multiplications(projections, linears, n, same_tokens)
    return before <= after


def slot_multiplications(projections: Pair, linears: Linears, n: int, same_tokens: bool) -> tuple[int, int]:
    """The multiplications that make the slots of a sentence of padded length n, slots first and tokens first.

    Args:
        same_tokens: the keys are the values too.
    """
    keys, values = projections
    slots = keys.num_slots(n)
    before = after = 0
    for projection, linear in zip(projections, linears, strict=True):
        before += projection.multiplications(n) * projection.groups * linear.in_features
        before += slots * linear.in_features * linear.out_features
        after += n * linear.in_features * linear.out_features
        after += projection.multiplications(n) * linear.out_features
    if values is keys and same_tokens:
        before -= values.multiplications(n) * values.groups * linears[1].in_features
    return before, after


def projecting_scores_pays(
    projections: Pair, linears: Linears, queries: int, heads: int, n: int, same_tokens: bool, limits: Thresholds
) -> bool:
    """Whether a sentence of padded length n is faster with its scores projected than with slots, in their cheaper
    order.

    On a processor it is where it multiplies less. Elsewhere what is written and read between the products counts too:
    tokens or slots, and what torch's fused attention keeps inside, scores over tokens and over slots. Only for a matrix
    that all sentences and heads share.

    Args:
        same_tokens: the keys are the values too.
    """
    keys = projections[0]
    shared = keys.same_for_all_sentences and keys.num_heads is None
    if not (shared and all(map(is_plain, linears))):
        return False
    slots, width = keys.num_slots(n), linears[0].out_features
    by_slots = min(slot_multiplications(projections, linears, n, same_tokens)) + 2 * queries * slots * width
    by_scores = sum(n * linear.in_features * width for linear in linears) + 2 * queries * n * (width + heads * slots)
    by_slots += limits.number_moved * 4 * (slots + min(n, slots)) * width
    by_scores += limits.number_moved * 4 * (n * width + queries * heads * (n + slots))
    return by_scores < by_slots


def key_value_slots(
    projections: Pair, linears: Linears, heads: int, key: Tensor, value: Tensor, lengths: Tensor, cache: ForwardCache
) -> tuple[Tensor, Tensor]:
    """Projects keys and values onto slots, (B, H, s, d) each.

    Args:
        key, value: (n, B, D), zero at padded positions; the same tensor where the keys are the values.
        lengths: tokens of each sentence, (B,).
        cache: open where other layers project the same tokens with the same projections.
    """
    keys, values = projections
    if not slots_first(projections, linears, len(key), value is key):
        return (
            _tokens_then_slots(key, keys, linears[0], heads, lengths),
            _tokens_then_slots(value, values, linears[1], heads, lengths),
        )
    if value is key:
        slots = cache.get("slots", key, lambda x: keys.with_values(values, x.unsqueeze(2), lengths))
    else:
        slots = keys(key.unsqueeze(2), lengths), values(value.unsqueeze(2), lengths)
    return _keys_of_slots(slots[0], linears[0], heads), _keys_of_slots(slots[1], linears[1], heads)


def _tokens_then_slots(x: Tensor, projection: Projection, linear: nn.Linear, heads: int, lengths: Tensor) -> Tensor:
    """(n, B, D) to (B, H, s, d): the linear map without its bias, the projection, the bias."""
    tokens = F.linear(x, linear.weight)
    if projection.num_heads is None:
        slots = _by_head(projection(tokens.unsqueeze(2), lengths).squeeze(1), heads)
    else:
        slots = projection(tokens.unflatten(2, (heads, -1)), lengths)
    return slots if linear.bias is None else slots + linear.bias.view(heads, 1, -1)


def _keys_of_slots(slots: Tensor, linear: nn.Linear, heads: int) -> Tensor:
    """(B, 1, s, D), or (B, H, s, D) where every head has slots of its own, to (B, H, s, d)."""
    if slots.size(1) == 1:
        return _by_head(linear(slots.squeeze(1)), heads)
    rows = slots.transpose(0, 1).flatten(1, 2)  # (H, B s, D)
    out = torch.bmm(rows, linear.weight.unflatten(0, (heads, -1)).transpose(1, 2))
    out = out.unflatten(1, (len(slots), -1)).transpose(0, 1)
    return out if linear.bias is None else out + linear.bias.view(heads, 1, -1)


def _by_head(slots: Tensor, heads: int) -> Tensor:
    """(B, s, C) to (B, H, s, d)."""
    return slots.unflatten(2, (heads, -1)).transpose(1, 2)
