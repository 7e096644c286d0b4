"""Attention weights over tokens, (B, H, T, n): at least 0, and 1 in all for every query."""

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.padding import Padding


def weights_of_slots(probabilities: Tensor, matrix: Tensor, lengths: Tensor | None, by_head: bool) -> Tensor:
    """The weights of tokens of which slots are made: what a slot gets is spread over its tokens by |F|.

    Args:
        probabilities: of the slots, (B, H, T, s).
        matrix: F, (1 or B, s, n).
        lengths: tokens of each sentence, (B,); None where all have n.
        by_head: whether the weights of each head are wanted; otherwise their mean is given, (B, 1, T, n).
    """
    shares = matrix.abs()
    tokens = torch.arange(shares.size(2), device=shares.device)
    padding = (tokens >= shares.size(2) if lengths is None else tokens >= lengths.clamp(min=1)[:, None])[..., None, :]
    shares = shares.masked_fill(padding, 0.0)
    nothing = (shares == 0).all(2, keepdim=True)  # a slot of nothing looks at all tokens
    shares = shares.masked_fill(nothing & ~padding, 1.0)
    shares = shares / shares.sum(2, keepdim=True)
    if not by_head:  # one product for all heads
        probabilities = probabilities.mean(1, keepdim=True)
    return probabilities @ shares[:, None]


def weights_of_growing_slots(probabilities: Tensor, matrix: Tensor, first: int) -> Tensor:
    """The weights of tokens, (B, H, T, n), of which slots are made that have one token more with every query.

    Args:
        probabilities: of the slots, (B, H, T, s).
        matrix: F, (s, n).
        first: the last token in the slots of the first query; none where it is below 0.
    """
    shares = matrix.abs().to(probabilities.dtype)
    last = torch.arange(first, first + probabilities.size(2), device=shares.device)
    sums = shares.cumsum(1)[:, last.clamp(min=0)].t()  # (T, s)
    nothing = sums == 0  # a slot of nothing looks at all tokens
    evenly = probabilities.masked_fill(~nothing, 0.0).sum(3, keepdim=True) / (last + 1).clamp(min=1)[:, None]
    of_a_share = probabilities.masked_fill(nothing, 0.0) / sums.masked_fill(nothing, 1.0)
    return (of_a_share @ shares + evenly).tril(first)


def without_padding(weights: Tensor, padding: Padding | None) -> Tensor:
    """Sets the weights (B, H, T, n) of padded tokens, which are among the last, to zero."""
    if padding is None:
        return weights
    hidden = F.pad(padding.mask, (weights.size(3) - padding.mask.size(1), 0))
    return weights.masked_fill(hidden[:, None, None], 0.0)
