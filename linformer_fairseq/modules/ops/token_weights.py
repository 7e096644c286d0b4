"""Attention weights over tokens, as fairseq returns them: (H, B, T, n) by head, or their mean over heads (B, T, n)."""

import torch
from torch import Tensor


def weights_of_slots(probabilities: Tensor, matrix: Tensor, by_head: bool) -> Tensor:
    """The weights P F that attention to slots gives to tokens.

    Args:
        probabilities: P, of the slots, (B, H, T, s).
        matrix: F, (1 or B, G, s, n), G = 1 where the heads share it and H where they do not.
    """
    matrix = matrix.to(probabilities.dtype)
    if by_head:
        return (probabilities @ matrix).transpose(0, 1)
    if matrix.size(1) == 1:  # one product for all heads
        return probabilities.mean(1) @ matrix[:, 0]
    return (probabilities @ matrix).mean(1)


def weights_of_window(probabilities: Tensor, position: int, by_head: bool) -> Tensor:
    """The weights of the tokens in a causal window, for n = T tokens and those of earlier calls.

    Args:
        probabilities: of the window's tokens, the oldest first, (B, H, T, w).
        position: the number of tokens of earlier calls.
    """
    length, window = probabilities.shape[2:]
    rows = torch.arange(length, device=probabilities.device)[:, None]
    tokens = rows + torch.arange(1, window + 1, device=probabilities.device) + position  # w places to the right
    weights = probabilities.new_zeros(*probabilities.shape[:3], window + position + length)
    weights = weights.scatter(3, tokens.expand(probabilities.shape), probabilities)[..., window:]
    return weights.transpose(0, 1) if by_head else weights.mean(1)
