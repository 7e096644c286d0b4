"""The two masked products of causal Linformer attention, in chunks, with their gradients.

    tokens to slots:    S = tril(X Tᵀ) M        X (T, d) the rows, T (T, d) the tokens, M (T, k) the columns of E or F
    slots to tokens:    O = tril(Y Mᵀ) T        Y (T, k)

In causal attention S = tril(Q Kᵀ) Eᵀ is the one and O = tril(P F) V the other. Each is the other's gradient with
respect to its rows, so that both share all of their parts. Within a chunk of c tokens a product is computed as it
stands; the tokens before the chunk enter through the sum A = Σ_j t_j m_jᵀ, (d, k).

Shapes: m chunks of c tokens; X = H B heads and sentences, heads first; G = 1 where they share a matrix and H where
every head has its own; d features a head, k slots. All tensors are contiguous.
"""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class TokensToSlots(torch.autograd.Function):
    """tril(X Tᵀ) M of `rows` (m, X, c, d), `tokens` (m, X, d, c) and `matrix` (m, G, c, k).

    `start`, (X, d, k), is the sum A of tokens before these, or None. Gives (m, X, c, k), and with a start the sum after
    these tokens.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, tokens: Tensor, matrix: Tensor, start: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        sums, last = _sums_before(tokens, matrix, start)
        block, out = _to_slots(rows, tokens, matrix, sums)
        ctx.save_for_backward(rows, tokens, matrix, block, sums)
        ctx.has_start = start is not None
        return out, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, last_gradient: Tensor | None) -> tuple[Tensor, ...]:
        rows, tokens, matrix, block, sums = ctx.saved_tensors
        gradient = gradient.contiguous()
        gradient_block, rows_gradient = _to_tokens(gradient, matrix, tokens, sums)
        end = last_gradient if ctx.has_start else None
        return rows_gradient, *_gradients(rows, gradient, block, gradient_block, tokens, matrix, sums, end)


class SlotsToTokens(torch.autograd.Function):
    """tril(Y Mᵀ) T of `rows` (m, X, c, k), `matrix` (m, G, c, k) and `tokens` (m, X, d, c).

    `start` as above. Gives (m, X, c, d), and with a start the sum after these tokens.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, matrix: Tensor, tokens: Tensor, start: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        sums, last = _sums_before(tokens, matrix, start)
        block, out = _to_tokens(rows, matrix, tokens, sums)
        ctx.save_for_backward(rows, matrix, tokens, block, sums)
        ctx.has_start = start is not None
        return out, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, last_gradient: Tensor | None) -> tuple[Tensor, ...]:
        rows, matrix, tokens, block, sums = ctx.saved_tensors
        gradient = gradient.contiguous()
        gradient_block, rows_gradient = _to_slots(gradient, tokens, matrix, sums)
        end = last_gradient if ctx.has_start else None
        tokens_gradient, matrix_gradient, start_gradient = _gradients(
            gradient, rows, gradient_block, block, tokens, matrix, sums, end
        )
        return rows_gradient, matrix_gradient, tokens_gradient, start_gradient


def _to_slots(rows: Tensor, tokens: Tensor, matrix: Tensor, sums: Tensor | None) -> tuple[Tensor, Tensor]:
    """The masked block of every chunk, (m, X, c, c), and the product (m, X, c, k)."""
    block = (rows @ tokens).tril_()
    out = _by_shared(block, matrix)
    return block, out if sums is None else _add_product(out, rows, sums)


def _to_tokens(rows: Tensor, matrix: Tensor, tokens: Tensor, sums: Tensor | None) -> tuple[Tensor, Tensor]:
    """The masked block of every chunk, (m, X, c, c), and the product (m, X, c, d)."""
    block = _by_shared(rows, matrix.transpose(2, 3)).tril_()
    out = block @ tokens.transpose(2, 3)
    return block, out if sums is None else _add_product(out, rows, sums.transpose(2, 3))


def _gradients(
    x: Tensor,
    y: Tensor,
    x_block: Tensor,
    y_block: Tensor,
    tokens: Tensor,
    matrix: Tensor,
    sums: Tensor | None,
    end: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of tokens, matrix and start, the same for both products: of the rows and the gradient that came, `x` is
    the one of d features and `y` the one of k slots, with their masked blocks tril(x Tᵀ) and tril(y Mᵀ).

    What comes after a chunk enters through the sum Σ_i x_i y_iᵀ, (d, k); `end`, the gradient of the sum after all
    tokens, is added to it.
    """
    tokens_gradient = x.transpose(2, 3) @ y_block
    matrix_gradient = _over_sharers(x_block, y, matrix)
    if sums is None:
        return tokens_gradient, matrix_gradient, None
    after, start_gradient = _running_sums(x.transpose(2, 3) @ y, end, reverse=True)
    _by_shared(after, matrix.transpose(2, 3), add_to=tokens_gradient)
    matrix_gradient += _over_sharers(tokens, after, matrix)
    return tokens_gradient, matrix_gradient, None if end is None else start_gradient


def _by_shared(x: Tensor, matrix: Tensor, add_to: Tensor | None = None) -> Tensor:
    """(m, X, r, i) by (m, G, i, s), one product for all rows that share a matrix; may be added to another in place."""
    chunks, groups = matrix.shape[:2]
    rows = x.view(chunks * groups, x.size(1) // groups * x.size(2), x.size(3))
    matrices = matrix.flatten(0, 1)
    if add_to is None:
        return torch.bmm(rows, matrices).view(*x.shape[:3], matrix.size(3))
    add_to.view(*rows.shape[:2], matrix.size(3)).baddbmm_(rows, matrices)
    return add_to


def _over_sharers(x: Tensor, y: Tensor, matrix: Tensor) -> Tensor:
    """Σ xᵀ y over all that share a matrix: (m, X, r, c) and (m, X, r, k) to the shape of the matrix, (m, G, c, k)."""
    chunks, groups = matrix.shape[:2]
    x, y = (z.view(chunks, groups, z.size(1) // groups * z.size(2), z.size(3)) for z in (x, y))
    return x.transpose(2, 3) @ y


def _add_product(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Adds left @ right to `x`, in place."""
    x.flatten(0, 1).baddbmm_(left.flatten(0, 1), right.flatten(0, 1))
    return x


def _sums_before(tokens: Tensor, matrix: Tensor, start: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """A before every chunk, (m, X, d, k), and after the last, (X, d, k); None and None where no token comes before."""
    if len(tokens) == 1 and start is None:
        return None, None
    before, last = _running_sums(_by_shared(tokens, matrix), start)
    return before, None if start is None else last


def _running_sums(x: Tensor, start: Tensor | None, reverse: bool = False) -> tuple[Tensor, Tensor]:
    """The start plus the sum of all earlier rows of `x` (m, ...), and plus all rows; `reverse` counts from the end.

    They are added up in float32 or better, and given in the type of `x`, the last in that of the start.
    """
    sums = torch.empty_like(x, dtype=torch.promote_types(x.dtype, torch.float32))
    first, last = (-1, 0) if reverse else (0, -1)
    sums[first] = 0 if start is None else start
    if reverse:
        sums[:-1] = x[1:]
    else:
        sums[1:] = x[:-1]
    # on a CPU cumsum along the first dimension takes four times as long as a loop
    sums = (_looped_cumsum if sums.device.type == "cpu" else _cumsum)(sums, reverse)
    return sums.to(x.dtype), sums[last] + x[last]


def _looped_cumsum(x: Tensor, reverse: bool) -> Tensor:
    """Sums along the first dimension, made in place."""
    rows = x.unbind()
    for earlier, row in pairwise(rows[::-1] if reverse else rows):
        row.add_(earlier)
    return x


def _cumsum(x: Tensor, reverse: bool) -> Tensor:
    return x.flip(0).cumsum(0).flip(0) if reverse else x.cumsum(0)
