"""Attention weights over tokens, (B, H, T, n): at least 0, and 1 in all for every query."""

import torch
from torch import Tensor


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


def weights_of_window(probabilities: Tensor, position: int) -> Tensor:
    """The weights of the tokens in a causal window, (B, H, T, n), for n = T tokens and those of earlier calls.

    Args:
        probabilities: of the window's tokens, the oldest first, (B, H, T, w).
        position: the number of tokens of earlier calls.
    """
    length, window = probabilities.shape[2:]
    rows = torch.arange(length, device=probabilities.device)[:, None]
    tokens = rows + torch.arange(1, window + 1, device=probabilities.device) + position  # w places to the right
    weights = probabilities.new_zeros(*probabilities.shape[:3], window + position + length)
    return weights.scatter(3, tokens.expand(probabilities.shape), probabilities)[..., window:]
