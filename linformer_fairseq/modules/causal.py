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
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.causal_products import slots_to_tokens, tokens_to_slots

LONGEST_SINGLE_CHUNK = 192
"""Tokens of a text that is computed fastest, if not with least memory, in a single chunk."""
CHUNK_SIZE = 64
"""Tokens a chunk, at most, with which longer texts are computed fastest."""


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
    chunk_size: int | None = None,
    state: CausalState | None = None,
    overwrite_state: bool = False,
    need_probabilities: bool = False,
) -> tuple[Tensor, Tensor | None, CausalState | None]:
    """Attends from every token to the slots of the tokens up to it.

    Without a state this is the chunked form, of time O(T (k + c) d) and memory O(T (k + c) + T/c k d) a head. With one
    it is the recurrent form: the T tokens, one or many, come after those of the state.

    Args:
        query: (T, B, H, d), scaled.
        key, value: (T, B, H, d), without bias and zero at padded positions.
        key_matrix, value_matrix: (G, k, T), the columns of E and F that these tokens meet.
        slot_mask: (T, k), true where a slot takes part in the softmax of a query; None where all do.
        dropout: falls on the probabilities.
        chunk_size: c, at most, by default the fastest; the chunks are made equally long.
        state: of the tokens before these.
        overwrite_state: the state is not needed any more, and its memory may be used for the new one.
        need_probabilities: return those of the slots.

    Returns:
        The output (T, B, H, d); the probabilities of the slots before dropout (T, B, H, k) where they are needed, with
        a state in its type; and the state after these tokens where one was given.
    """
    dtype = query.dtype
    inner = dtype if state is None else state.keys.dtype
    inputs = (x.to(inner) for x in (query, key, value, key_matrix, value_matrix))
    with torch.autocast(query.device.type, enabled=False):  # the types are chosen already
        if state is not None and len(query) == 1:
            out, probabilities, state = _next_token(*inputs, slot_mask, dropout, state, overwrite_state)
        else:
            if chunk_size is None:
                chunk_size = default_chunk_size(len(query))
            chunks = max(1, math.ceil(len(query) / chunk_size))
            out, probabilities, state = _in_chunks(*inputs, slot_mask, dropout, state, chunks, need_probabilities)
    return out.to(dtype), probabilities if need_probabilities else None, state


def default_chunk_size(length: int) -> int:
    """Tokens a chunk, at most, in a text of so many tokens."""
    return LONGEST_SINGLE_CHUNK if length <= LONGEST_SINGLE_CHUNK else CHUNK_SIZE


def _in_chunks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_matrix: Tensor,
    value_matrix: Tensor,
    slot_mask: Tensor | None,
    dropout: Callable[[Tensor], Tensor] | None,
    state: CausalState | None,
    chunks: int,
    need_probabilities: bool,
) -> tuple[Tensor, Tensor | None, CausalState | None]:
    length, heads = query.size(0), query.size(2)
    q = _split(query, chunks).permute(0, 3, 2, 1, 4).flatten(1, 2).contiguous()  # (m, X, c, d), with X = H B
    k = _split(key, chunks).permute(0, 3, 2, 4, 1).flatten(1, 2).contiguous()  # (m, X, d, c)
    v = _split(value, chunks).permute(0, 3, 2, 4, 1).flatten(1, 2).contiguous()
    e = _split(key_matrix.permute(2, 0, 1), chunks).transpose(1, 2).contiguous()  # (m, G, c, k)
    f = _split(value_matrix.permute(2, 0, 1), chunks).transpose(1, 2).contiguous()
    key_sums, value_sums = (None, None) if state is None else (x.transpose(0, 1).flatten(0, 1) for x in state)

    scores, key_sums = tokens_to_slots(q, k, e, key_sums)  # (m, X, c, k)
    if slot_mask is not None:
        padded = F.pad(slot_mask, (0, 0, 0, -length % chunks), value=True)
        slot_mask = padded.view(chunks, 1, -1, slot_mask.size(1))
    probabilities, dropped = _softmax(scores, slot_mask, dropout)
    out, value_sums = slots_to_tokens(dropped, v, f, value_sums)  # (m, X, c, d)

    def join(x: Tensor) -> Tensor:
        """(m, X, c, s) to (T, B, H, s)."""
        x = x.unflatten(1, (heads, -1)).permute(0, 3, 2, 1, 4).flatten(0, 1)
        return x if len(x) == length else x[:length]  # a slice's gradient is one more copy

    if state is not None:
        state = CausalState(*(x.unflatten(0, (heads, -1)).transpose(0, 1) for x in (key_sums, value_sums)))
    return join(out), join(probabilities) if need_probabilities else None, state


def _next_token(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_matrix: Tensor,
    value_matrix: Tensor,
    slot_mask: Tensor | None,
    dropout: Callable[[Tensor], Tensor] | None,
    state: CausalState,
    overwrite_state: bool,
) -> tuple[Tensor, Tensor, CausalState]:
    """One token: it is added to the sums, and they are all that it meets."""
    add = Tensor.addcmul_ if overwrite_state else torch.addcmul
    # columns are far apart in memory, and are read for every feature of every hypothesis
    e, f = (matrix.transpose(1, 2).contiguous() for matrix in (key_matrix, value_matrix))  # (G, 1, k)
    keys = add(state.keys, key[0, ..., None], e)
    values = add(state.values, value[0, ..., None], f)
    scores = query.permute(1, 2, 0, 3) @ keys  # (B, H, 1, k)
    probabilities, dropped = _softmax(scores, slot_mask, dropout)
    out = dropped @ values.transpose(2, 3)
    return out.permute(2, 0, 1, 3), probabilities.permute(2, 0, 1, 3), CausalState(keys, values)


def _softmax(
    scores: Tensor, slot_mask: Tensor | None, dropout: Callable[[Tensor], Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The probabilities of the slots, before and after dropout."""
    if slot_mask is not None:
        scores = scores.masked_fill(~slot_mask, -torch.inf)
    probabilities = torch.softmax(scores, dim=-1)
    return probabilities, probabilities if dropout is None else dropout(probabilities)


def _split(x: Tensor, chunks: int) -> Tensor:
    """(T, ...) to (m, c, ...), with zeros at the end where m does not divide T."""
    missing = -len(x) % chunks
    if missing:
        x = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
    return x.unflatten(0, (chunks, len(x) // chunks))
