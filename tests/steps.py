"""Queries of a search in calls of several sizes."""

import torch
from torch import Tensor

from linformer_fairseq.modules import ProjectedAttention


def steps_of(length: int, sizes: list[int]) -> list[int]:
    """Returns the sizes, repeated and cut so that they add up to the length."""
    steps: list[int] = []
    while sum(steps) < length:
        steps.append(min(sizes[len(steps) % len(sizes)], length - sum(steps)))
    return steps


@torch.no_grad()
def decode(attention: ProjectedAttention, x: Tensor, steps: list[int]) -> Tensor:
    """Returns the output of causal attention for `x` in calls of these numbers of tokens."""
    state: dict = {}
    return torch.cat([attention(part, part, part, incremental_state=state)[0] for part in x.split(steps)])
