"""Exact causal Linformer: the prefix rule, in chunks for training and with a state of constant size for decoding.

Query i sees the tokens 0 ... i, so it meets the slots that a sentence of these tokens alone would have,
E[:, :i+1] K[:i+1] and F[:, :i+1] V[:i+1]. For all queries of a head at once:

    S = tril(Q Kᵀ) Eᵀ        P = softmax(S)        O = tril(P F) V

Nothing after token i enters row i. Both masked products are those of causal linear attention: within a chunk of c
tokens they are computed as they stand, and all tokens before the chunk come in through two sums,

    A_K = Σ_j k_j E[:, j]ᵀ        A_V = Σ_j v_j F[:, j]ᵀ        both (d, k).

Shapes: T tokens, B the batch, H heads, d features a head, k slots, G = 1 where the heads share E and F and H where they
do not; m chunks of c tokens.
"""

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK_SIZE = 64
"""Tokens a chunk, at most."""


class CausalState(NamedTuple):
    """What decoding keeps of the tokens so far: its size does not depend on their number."""

    keys: Tensor
    """A_K, (B, H, d, k), in float32 or better."""
    values: Tensor
    """A_V, alike."""


def causal_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_matrix: Tensor,
    value_matrix: Tensor,
    slot_mask: Tensor | None = None,
    dropout: Callable[[Tensor], Tensor] | None = None,
    chunk_size: int = CHUNK_SIZE,
    state: CausalState | None = None,
) -> tuple[Tensor, Tensor, CausalState | None]:
    """Attends from every token to the slots of the tokens up to it.

    Without a state this is the chunked form, of time O(T (k + c) d) and memory O(T (k + c) + T/c k d) a head. With one
    it is the recurrent form: the T tokens, one or many, come after those of the state.

    Args:
        query: (T, B, H, d), scaled.
        key, value: (T, B, H, d), without bias and zero at padded positions.
        key_matrix, value_matrix: (G, k, T), the columns of E and F that these tokens meet.
        slot_mask: (T, k), true where a slot takes part in the softmax of a query; None where all do.
        dropout: falls on the probabilities.
        chunk_size: c, at most; the chunks are made equally long.
        state: of the tokens before these. Where no gradient is asked for, a single token updates it in place.

    Returns:
        The output (T, B, H, d), the probabilities of the slots (T, B, H, k), and the state after these tokens where
        one was given.
    """
    dtype = query.dtype
    if state is not None:
        inputs = (query, key, value, key_matrix, value_matrix)
        query, key, value, key_matrix, value_matrix = (x.to(state.keys.dtype) for x in inputs)
        if len(query) == 1:
            out, probabilities, state = _next_token(
                query, key, value, key_matrix, value_matrix, slot_mask, dropout, state
            )
            return out.to(dtype), probabilities, state

    length = len(query)
    chunks = math.ceil(length / chunk_size)
    q = _split(query, chunks).permute(0, 3, 2, 1, 4).contiguous()  # (m, H, B, c, d)
    k = _split(key, chunks).permute(0, 3, 2, 4, 1).contiguous()  # (m, H, B, d, c)
    v = _split(value, chunks).permute(0, 3, 2, 4, 1).contiguous()
    e = _split(key_matrix.permute(2, 0, 1), chunks).transpose(1, 2).contiguous()  # (m, G, c, k)
    f = _split(value_matrix.permute(2, 0, 1), chunks).transpose(1, 2).contiguous()

    scores = _shared_product((q @ k).tril_(), e)  # (m, H, B, c, k)
    if chunks > 1 or state is not None:
        before, keys = _sums(_shared_product(k, e), None if state is None else state.keys)
        scores = _add_product(scores, q, before)
    if slot_mask is not None:
        mask = F.pad(slot_mask, (0, 0, 0, -length % chunks), value=True)
        scores = scores.masked_fill(~mask.view(chunks, 1, 1, -1, mask.size(1)), -torch.inf)
    probabilities = torch.softmax(scores, dim=-1)
    dropped = probabilities if dropout is None else dropout(probabilities)

    out = _shared_product(dropped, f.transpose(2, 3)).tril_() @ v.transpose(3, 4)  # (m, H, B, c, d)
    if chunks > 1 or state is not None:
        before, values = _sums(_shared_product(v, f), None if state is None else state.values)
        out = _add_product(out, dropped, before.transpose(3, 4))
    state = None if state is None else CausalState(keys, values)
    return _join(out, length).to(dtype), _join(probabilities, length), state


def _next_token(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_matrix: Tensor,
    value_matrix: Tensor,
    slot_mask: Tensor | None,
    dropout: Callable[[Tensor], Tensor] | None,
    state: CausalState,
) -> tuple[Tensor, Tensor, CausalState]:
    """`causal_attention` for one token: it is added to the sums, and they are all that it meets."""
    add = torch.addcmul if torch.is_grad_enabled() else Tensor.addcmul_
    keys = add(state.keys, key[0, ..., None], key_matrix.transpose(1, 2))  # (B, H, d, 1) and (G, 1, k)
    values = add(state.values, value[0, ..., None], value_matrix.transpose(1, 2))
    scores = query.permute(1, 2, 0, 3) @ keys  # (B, H, 1, k)
    if slot_mask is not None:
        scores = scores.masked_fill(~slot_mask, -torch.inf)
    probabilities = torch.softmax(scores, dim=-1)
    dropped = probabilities if dropout is None else dropout(probabilities)
    out = dropped @ values.transpose(2, 3)
    return out.permute(2, 0, 1, 3), probabilities.permute(2, 0, 1, 3), CausalState(keys, values)


def _split(x: Tensor, chunks: int) -> Tensor:
    """(T, ...) to (m, c, ...), with zeros at the end where m does not divide T."""
    missing = -len(x) % chunks
    if missing:
        x = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
    return x.unflatten(0, (chunks, -1))


def _join(x: Tensor, length: int) -> Tensor:
    """(m, H, B, c, s) to (T, B, H, s)."""
    x = x.permute(0, 3, 2, 1, 4).flatten(0, 1)
    return x if len(x) == length else x[:length]


def _shared_product(x: Tensor, matrix: Tensor) -> Tensor:
    """(m, H, B, r, i) by (m, G, i, s) as few large products: rows of all heads and sentences that share a matrix."""
    chunks, groups = matrix.shape[:2]
    rows = x.reshape(chunks, groups, -1, x.size(-1))
    return (rows @ matrix).view(*x.shape[:-1], -1)


def _add_product(x: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """x + left @ right of batched matrices in one pass."""
    return torch.baddbmm(*(matrix.flatten(0, 2) for matrix in (x, left, right))).view_as(x)


def _sums(products: Tensor, start: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sums of x_j matrix_jᵀ over all tokens before each chunk, and over all tokens.

    Args:
        products: the sums within each chunk, (m, H, B, d, k).
        start: the sum over the tokens before all chunks, (B, H, d, k), or None where there are none.

    Returns:
        (m, H, B, d, k) in the type of `products`, and (B, H, d, k) in float32 or better.
    """
    if start is None:
        dtype = torch.promote_types(products.dtype, torch.float32)
        start = products.new_zeros(1, dtype=dtype).expand(products[0].transpose(0, 1).shape)
    before = _SumsBefore.apply(products, start.transpose(0, 1))
    return before.to(products.dtype), (before[-1] + products[-1]).transpose(0, 1)


class _SumsBefore(torch.autograd.Function):
    """(m, ...) and a start (...) to the start plus the sum of all earlier rows, in the type of the start.

    Autograd of `cumsum` would reverse and copy whole tensors.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, start: Tensor) -> Tensor:
        sums = torch.empty_like(x, dtype=start.dtype)
        sums[0], sums[1:] = start, x[:-1]
        _add_up(sums)
        ctx.dtype = x.dtype
        return sums

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        sums = torch.empty_like(gradient)
        sums[-1], sums[:-1] = 0, gradient[1:]
        _add_up(sums, reverse=True)
        return sums.to(ctx.dtype), sums[0] + gradient[0]


def _add_up(x: Tensor, reverse: bool = False) -> None:
    """Adds to every row all that come before it, or with `reverse` after it."""
    if x.device.type == "cpu":  # where cumsum along the first dimension takes four times as long
        rows = x.unbind()
        for earlier, row in pairwise(rows[::-1] if reverse else rows):
            row.add_(earlier)
    else:
        x.copy_(x.flip(0).cumsum(0).flip(0) if reverse else x.cumsum(0))
