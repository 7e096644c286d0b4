"""Queries of a search in calls of several sizes."""

import torch
from torch import Tensor

from linformer_fairseq.modules import BaseAttention
from tests.reference import padding_mask


def steps_of(length: int, sizes: list[int]) -> list[int]:
    """Returns the sizes, repeated and cut so that they add up to the length."""
    steps: list[int] = []
    while sum(steps) < length:
        steps.append(min(sizes[len(steps) % len(sizes)], length - sum(steps)))
    return steps


@torch.no_grad()
def decode(attention: BaseAttention, x: Tensor, steps: list[int]) -> Tensor:
    """Returns the output of causal attention for `x` in calls of these numbers of tokens."""
    state: dict = {}
    return torch.cat([attention(part, part, part, incremental_state=state)[0] for part in x.split(steps)])


def check_steps_equal_one_pass(attention: BaseAttention, lengths: list[int], sizes: list[int]) -> None:
    """Asserts that outputs and weights of causal attention are those of one pass, in calls of these sizes.

    Sentences that end early, and whose padding is poisoned, change neither the others nor their own past.

    Args:
        lengths: of the sentences, the longest first.
    """
    n, mask = lengths[0], padding_mask(lengths)
    x = torch.randn(n, len(lengths), 8, dtype=torch.float64)
    poisoned = x.masked_fill(mask.t()[..., None], torch.nan)
    expected, expected_weights = attention(x, x, x, key_padding_mask=mask)
    state: dict = {}
    end = 0
    steps = steps_of(n, sizes)
    for query, key, part_mask in zip(x.split(steps), poisoned.split(steps), mask.split(steps, 1), strict=True):
        out, weights = attention(query, key, key, part_mask, state)
        start, end = end, end + len(query)
        torch.testing.assert_close(out, expected[start:end], rtol=1e-9, atol=1e-9)
        weights = weights.masked_fill(mask[:, None, :end], 0.0)  # the padding of earlier calls is not remembered
        torch.testing.assert_close(weights, expected_weights[:, start:end, :end], rtol=1e-9, atol=1e-9)


def check_steps_of_cross_attention(
    attention: BaseAttention, lengths: list[int], sizes: list[int], hypotheses: int
) -> None:
    """Asserts that cross-attention from 80 queries of each hypothesis is that of one pass, in calls of these sizes.

    All hypotheses of a sentence share its row. Sentences may end, and hypotheses of the others change places.

    Args:
        lengths: of three sources.
    """
    total = 80
    key = torch.randn(max(lengths), 3, 8, dtype=torch.float64)
    query = torch.randn(total, 3 * hypotheses, 8, dtype=torch.float64)
    copies = key.repeat_interleave(hypotheses, 1)
    mask = padding_mask(lengths)
    whole, whole_weights = attention(query, copies, copies, mask.repeat_interleave(hypotheses, 0), static_kv=True)
    source = [key, key, mask]
    state: dict = {}
    rows, position = torch.arange(3 * hypotheses), 0
    for number, length in enumerate(steps_of(total, sizes)):
        if number == 3:
            kept = torch.arange(hypotheses, 3 * hypotheses)  # the first sentence has ended
            attention.reorder_incremental_state(state, kept)
            rows = rows[kept]
        part = slice(position, position + length)
        out, weights = attention(query[part, rows], *source, state, static_kv=True)
        torch.testing.assert_close(out, whole[part, rows], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(weights, whole_weights[rows, part], rtol=1e-9, atol=1e-9)
        source, position = [None, None, None], position + length
