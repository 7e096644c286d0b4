"""The two masked products of causal Linformer attention, in chunks, with their gradients.

    tokens to slots:    S = tril(X Tᵀ) M        X (T, d) the rows, T (T, d) the tokens, M (T, k) the columns of E or F
    slots to tokens:    O = tril(Y Mᵀ) T        Y (T, k)

In causal attention S = tril(Q Kᵀ) Eᵀ is the one and O = tril(P F) V the other. Each is the other's gradient with
respect to its rows, so that both share all of their parts. Within a chunk of c tokens a product is computed as it
stands; the tokens before the chunk enter through the sum A = Σ_j t_j m_jᵀ, (d, k).

Shapes: m chunks of c tokens; X heads of sentences, which share a matrix; d features per head, k slots. All tensors are
contiguous. `start`, (X, d, k), is the sum A of tokens before these, or None.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from linformer_fairseq.modules.ops.precision import at_least_float32


def tokens_to_slots(
    rows: Tensor, tokens: Tensor, matrix: Tensor, start: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """tril(X Tᵀ) M of `rows` (m, X, c, d), `tokens` (m, X, d, c) and `matrix` (m, c, k): (m, X, c, k), and with a start
    the sum after these tokens."""
    return _MaskedProduct.apply(rows, tokens, matrix, start, True)  # type: ignore[no-untyped-call]


def slots_to_tokens(
    rows: Tensor, tokens: Tensor, matrix: Tensor, start: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    """tril(Y Mᵀ) T of `rows` (m, X, c, k), `tokens` (m, X, d, c) and `matrix` (m, c, k): (m, X, c, d), and with a start
    the sum after these tokens."""
    return _MaskedProduct.apply(rows, tokens, matrix, start, False)  # type: ignore[no-untyped-call]


class _MaskedProduct(torch.autograd.Function):
    """Computes one of the two products above, with a gradient of its own.

    The gradient computes blocks and sums again, as those of a long text take as much memory as rows and tokens. The
    block of a single chunk is kept.
    """

    @staticmethod
    def forward(
        ctx: Any, rows: Tensor, tokens: Tensor, matrix: Tensor, start: Tensor | None, to_slots: bool
    ) -> tuple[Tensor, Tensor | None]:
        block, out, last = _masked_product(rows, tokens, matrix, start, to_slots)
        ctx.save_for_backward(rows, tokens, matrix, start, block if len(block) == 1 else None)
        ctx.to_slots = to_slots
        return out, last

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, gradient: Tensor, last_gradient: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        """The gradients of rows, tokens, matrix and start, in the types of the forward pass under autocast, too.

        That of the rows is the other product, applied to the incoming gradient. Those of tokens, matrix and start have
        the same form for both products: of rows and incoming gradient, `x` is the one with d features and `y` the one
        with k slots, and later chunks enter through the sum Σ_i x_i y_iᵀ, (d, k).

        Large tensors are freed as soon as possible: here a training step needs most memory.
        """
        with torch.autocast(gradient.device.type, enabled=False):
            return _MaskedProduct._gradients(ctx, gradient, last_gradient)

    @staticmethod
    def _gradients(
        ctx: Any, gradient: Tensor, last_gradient: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, None]:
        rows, tokens, matrix, start, kept_block = ctx.saved_tensors

        def rows_block() -> Tensor:
            return _block(rows, tokens, matrix, ctx.to_slots) if kept_block is None else kept_block

        gradient = gradient.contiguous()
        block, rows_gradient, _ = _masked_product(gradient, tokens, matrix, start, not ctx.to_slots)
        if ctx.to_slots:
            x, y = rows, gradient
            tokens_gradient = x.transpose(2, 3) @ block
            block = rows_block()
            matrix_gradient = _over_heads(block, y)
        else:
            x, y = gradient, rows
            matrix_gradient = _over_heads(block, y)
            block = rows_block()
            tokens_gradient = x.transpose(2, 3) @ block
        del block
        if len(tokens) == 1 and start is None:
            return rows_gradient, tokens_gradient, matrix_gradient, None, None
        end = None if start is None else last_gradient
        after, start_gradient = _running_sums(x.transpose(2, 3) @ y, end, reverse=True)
        tokens_gradient.flatten(1, 2).baddbmm_(after.flatten(1, 2), matrix.transpose(1, 2))
        matrix_gradient += _over_heads(tokens, after)
        return rows_gradient, tokens_gradient, matrix_gradient, None if end is None else start_gradient, None


def _masked_product(
    rows: Tensor, tokens: Tensor, matrix: Tensor, start: Tensor | None, to_slots: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The masked block of every chunk, the product, and with a start the sum after the last chunk."""
    block = _block(rows, tokens, matrix, to_slots)
    out = _by_matrix(block, matrix) if to_slots else block @ tokens.transpose(2, 3)
    if len(tokens) == 1 and start is None:  # no token comes before
        return block, out, None
    sums, last = _running_sums(_by_matrix(tokens, matrix), start)
    out.flatten(0, 1).baddbmm_(rows.flatten(0, 1), (sums if to_slots else sums.transpose(2, 3)).flatten(0, 1))
    return block, out, None if start is None else last


def _block(rows: Tensor, tokens: Tensor, matrix: Tensor, to_slots: bool) -> Tensor:
    """tril(X Tᵀ) or tril(Y Mᵀ) of every chunk, (m, X, c, c)."""
    return (rows @ tokens if to_slots else _by_matrix(rows, matrix.transpose(1, 2))).tril_()


def _by_matrix(x: Tensor, matrix: Tensor) -> Tensor:
    """(m, X, r, i) by (m, i, j), in one product for all that share a matrix."""
    return torch.bmm(x.flatten(1, 2), matrix).view(*x.shape[:3], matrix.size(2))


def _over_heads(x: Tensor, y: Tensor) -> Tensor:
    """Σ xᵀ y over all that share a matrix: (m, X, r, c) and (m, X, r, k) to (m, c, k)."""
    return torch.bmm(x.flatten(1, 2).transpose(1, 2), y.flatten(1, 2))


def _running_sums(x: Tensor, start: Tensor | None, reverse: bool = False) -> tuple[Tensor, Tensor]:
    """The start plus the sum of all earlier rows of `x` (m, ...), and plus all rows; `reverse` counts from the end.

    They are added up in float32 or better, and given in the type of `x`, the last in that of the start. `x` may be
    overwritten.
    """
    if start is None:
        start = x.new_zeros(x.shape[1:], dtype=at_least_float32(x.dtype))
    # on a CPU cumsum along the first dimension takes four times as long as a loop
    return (_looped_sums if x.device.type == "cpu" else _cumsums)(x, start, reverse)


def _looped_sums(x: Tensor, start: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    total = start
    for row in reversed(x.unbind()) if reverse else x.unbind():
        before, total = total, total + row
        row.copy_(before)
    return x, total


def _cumsums(x: Tensor, start: Tensor, reverse: bool) -> tuple[Tensor, Tensor]:
    ordered = x.flip(0) if reverse else x
    sums = torch.cat([start[None], ordered]).cumsum(0)
    before, last = sums[:-1].to(x.dtype), sums[-1].clone()  # a view would keep all the others in memory
    return before.flip(0) if reverse else before, last
