"""Right-padding: column j of E must always project token j, but fairseq pads sources on the left."""

import torch
from torch import Tensor


def right_padding_order(tokens: Tensor, padding_idx: int) -> Tensor:
    """The order that moves the padding of every row to the right: `tokens.gather(1, order)`.

    Args:
        tokens: (B, n), padded on either side.

    Returns:
        (B, n), a permutation of every row that keeps the order of its tokens.
    """
    return tokens.eq(padding_idx).byte().argsort(dim=1, stable=True)


def refuse_left_padding(tokens: Tensor, padding_idx: int) -> None:
    """Refuses padding before a token, where column j of E would project another token than the j-th of a row.

    Nothing waits for the result: on a GPU it ends the program with a device-side assertion, as an index outside an
    embedding does.

    Args:
        tokens: (B, n).

    Raises:
        RuntimeError: on a processor.
    """
    right_padded = (tokens[:, :-1].ne(padding_idx) | tokens[:, 1:].eq(padding_idx)).all()
    torch._assert_async(right_padded, "targets padded on the left are not supported; pad them on the right")


def restore_padding(weights: Tensor, tokens: Tensor, padding_idx: int) -> Tensor:
    """Brings attention weights over right-padded tokens back to the layout of `tokens`.

    Args:
        weights: (B, T, n).
        tokens: (B, n), as the task padded them.
    """
    order = right_padding_order(tokens, padding_idx)[:, None].expand_as(weights)
    return weights.new_zeros(weights.shape).scatter(2, order, weights)
