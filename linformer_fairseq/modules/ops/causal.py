"""Exact causal Linformer: the prefix rule, in chunks for training and with a state of constant size for decoding.

Query i sees the tokens 0 ... i, so it attends to the slots that a sentence of these tokens alone would have,
E[:, :i+1] K[:i+1] and F[:, :i+1] V[:i+1]. For all queries of a head at once:

    S = tril(Q Kᵀ) Eᵀ        P = softmax(S)        O = tril(P F) V

Nothing after token i enters row i. Both masked products are those of causal linear attention: within a chunk of c
tokens they are computed as they stand, and all tokens before the chunk come in through two sums,

    A_K = Σ_j k_j E[:, j]ᵀ        A_V = Σ_j v_j F[:, j]ᵀ        both (d, k).

With a window of w tokens a query attends to the last w, itself included, one by one, and only the tokens before them
enter its slots. Slots and tokens share one softmax, and up to w tokens this is full causal attention:

    S = tril(Q Kᵀ, -w) Eᵀ        N = Q Kᵀ where i - w < j <= i        [P, R] = softmax([S, N])
    O = tril(P F, -w) V + R V

A token that leaves the window is what enters the sums, so that the state grows by w keys and values and no more.

Shapes: T tokens, B the batch, H heads, d features per head, k slots, w tokens of the window, G = 1 where the heads
share E and F and H where they do not; m chunks of c tokens.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.ops.causal_products import slots_to_tokens, tokens_to_slots
from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.ops.thresholds import CPU, Thresholds, thresholds


class CausalState(NamedTuple):
    """What decoding keeps of the tokens so far, however many they are."""

    key_sums: Tensor
    """A_K, (B, H, d, k), in float32 or better."""
    value_sums: Tensor
    """A_V, (B, H, d, k), in float32 or better."""
    recent_keys: Tensor
    """The keys of the last w tokens, (B, H, w, d), zero where there are fewer; w = 0 without a window."""
    recent_values: Tensor
    """Their values, (B, H, w, d), likewise."""


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
    window: int = 0,
    position: int = 0,
) -> tuple[Tensor, Tensor | None, CausalState | None]:
    """Attends from every token to the slots of the tokens up to it, or up to its window, and to the window's tokens.

    Without a state this is the chunked form, of time O(T (k + c) d) and memory O(T (k + c) + T/c k d) a head. With one
    it is the recurrent form: the T tokens, one or many, come after those of the state.

    Args:
        query: (T, B, H, d), scaled.
        key, value: (T, B, H, d), without bias and zero at padded positions.
        key_matrix, value_matrix: (G, k, T), the columns of E and F for these tokens; with a window the columns for the
            tokens w places before them, and zeros where there are none.
        slot_mask: (T, k), true where a slot takes part in the softmax of a query; None where all do.
        dropout: falls on the probabilities.
        chunk_size: c, at most, by default the fastest; the chunks are made equally long.
        state: of the tokens before these.
        overwrite_state: the state is not needed any more, and its memory may be used for the new one.
        need_probabilities: return them.
        window: w, 0 for none.
        position: how many tokens came before these.

    Returns:
        The output (T, B, H, d); the probabilities of the slots before dropout and of the window's tokens, the oldest
        first, (T, B, H, k + w) where they are needed, in float32 or better; and the state after these tokens where
        one was given.
    """
    dtype = query.dtype
    of_values = dtype if state is None else state.key_sums.dtype
    q, k, e = (x.to(at_least_float32(of_values)) for x in (query, key, key_matrix))  # of which scores are made
    v, f = value.to(of_values), value_matrix.to(of_values)
    with torch.autocast(query.device.type, enabled=False):  # the types are chosen already
        if state is not None and len(query) == 1:
            out, weights, state = _next_token(q, k, v, e, f, slot_mask, dropout, state, overwrite_state, position)
            return out.to(dtype), weights if need_probabilities else None, state
        size = chunk_size or default_chunk_size(len(query), thresholds(query.device))
        chunks = max(1, math.ceil(len(query) / size))
        out, probabilities, state = _in_chunks(
            q, k, v, e, f, slot_mask, dropout, state, chunks, need_probabilities, window, position
        )
    return out.to(dtype), probabilities, state


def default_chunk_size(length: int, limits: Thresholds = CPU) -> int:
    """The largest chunk, in tokens, with which a text of this length is computed fastest."""
    return limits.longest_single_chunk if length <= limits.longest_single_chunk else limits.chunk_size


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
    window: int,
    position: int,
) -> tuple[Tensor, Tensor | None, CausalState | None]:
    length, heads = query.size(0), query.size(2)
    near = None
    if window:
        recent = (None, None) if state is None else (state.recent_keys, state.recent_values)
        key, value = (_after(old, new, window) for old, new in zip(recent, (key, value), strict=True))
        near = _LocalWindow.of(key, value, chunks, window, position)
    recent_keys, recent_values = (x[length:].permute(1, 2, 0, 3) for x in (key, value))
    key, value = key[:length], value[:length]  # with a window, the tokens that leave those of these queries
    q = _split(query, chunks).permute(0, 3, 2, 1, 4).flatten(1, 2).contiguous()  # (m, X, c, d), with X = H B
    k = _split(key, chunks).permute(0, 3, 2, 4, 1).flatten(1, 2).contiguous()  # (m, X, d, c)
    v = _split(value, chunks).permute(0, 3, 2, 4, 1).flatten(1, 2).contiguous()
    e = _split(key_matrix.permute(2, 0, 1), chunks).transpose(1, 2).contiguous()  # (m, G, c, k)
    f = _split(value_matrix.permute(2, 0, 1), chunks).transpose(1, 2).contiguous()
    starts = (None, None) if state is None else [x.transpose(0, 1).flatten(0, 1) for x in state[:2]]

    scores, key_sums = tokens_to_slots(q, k, e, starts[0])  # (m, X, c, k)
    if slot_mask is not None:
        padded = F.pad(slot_mask, (0, 0, 0, -length % chunks), value=True)
        slot_mask = padded.view(chunks, 1, -1, slot_mask.size(1))
    window_scores = None if near is None else near.scores(q)
    probabilities, dropped = _softmax(scores, slot_mask, window_scores, dropout)
    slots = scores.size(3)
    # in one piece, as the products take them
    dropped = dropped.to(v.dtype)
    of_slots = dropped if near is None else dropped[..., :slots].contiguous()
    out, value_sums = slots_to_tokens(of_slots, v, f, starts[1])  # (m, X, c, d)
    if near is not None:
        out = out + dropped[..., slots:] @ near.values

    def join(x: Tensor) -> Tensor:
        """(m, X, c, s) to (T, B, H, s)."""
        x = x.unflatten(1, (heads, -1)).permute(0, 3, 2, 1, 4).flatten(0, 1)
        return x if len(x) == length else x[:length]  # a slice's gradient is one more copy

    if key_sums is not None and value_sums is not None:  # there was a state
        key_sums, value_sums = (x.unflatten(0, (heads, -1)).transpose(0, 1) for x in (key_sums, value_sums))
        state = CausalState(key_sums, value_sums, recent_keys, recent_values)
    if not need_probabilities:
        return join(out), None, state
    if near is not None:
        probabilities = torch.cat([probabilities[..., :slots], near.in_window(probabilities[..., slots:])], 3)
    return join(out), join(probabilities), state


class _LocalWindow(NamedTuple):
    """The tokens that a chunk's queries attend to one by one: the chunk's own, and the w before it."""

    keys: Tensor
    """(m, X, d, w + c)."""
    values: Tensor
    """(m, X, w + c, d)."""
    window: int
    position: int

    @classmethod
    def of(cls, key: Tensor, value: Tensor, chunks: int, window: int, position: int) -> "_LocalWindow":
        """The windows of the queries of T tokens, from keys and values (w + T, B, H, d) that begin w tokens earlier."""
        size = -(-(len(key) - window) // chunks)
        firsts = size * torch.arange(chunks, device=key.device)[:, None]
        tokens = firsts + torch.arange(window + size, device=key.device)
        index = tokens.clamp(max=len(key) - 1)  # the last chunk may be shorter
        keys, values = (x[index].permute(0, 3, 2, 1, 4).flatten(1, 2) for x in (key, value))  # (m, X, w + c, d)
        return cls(keys.transpose(2, 3).contiguous(), values.contiguous(), window, position)

    def scores(self, query: Tensor) -> Tensor:
        """The scores of these tokens for queries (m, X, c, d), -inf outside of a query's window: (m, X, c, w + c)."""
        chunks, _, size, _ = query.shape
        rows = torch.arange(size, device=query.device)[:, None]
        columns = torch.arange(self.window + size, device=query.device)
        inside = (columns > rows) & (columns <= rows + self.window)
        firsts = self.position + size * torch.arange(chunks, device=query.device) - self.window
        begun = firsts[:, None] + columns >= 0  # (m, w + c)
        return (query @ self.keys).masked_fill(~(inside & begun[:, None])[:, None], -torch.inf)

    def in_window(self, probabilities: Tensor) -> Tensor:
        """Reorders probabilities (m, X, c, w + c) by their place in each query's window, (m, X, c, w)."""
        size = probabilities.size(2)
        rows = torch.arange(size, device=probabilities.device)[:, None]
        index = rows + 1 + torch.arange(self.window, device=probabilities.device)
        return probabilities.gather(3, index.expand(*probabilities.shape[:3], -1))


def _after(recent: Tensor | None, new: Tensor, window: int) -> Tensor:
    """The new tokens (T, B, H, d) after the recent ones (B, H, w, d), which are zeros where there is no state."""
    before = new.new_zeros(window, *new.shape[1:]) if recent is None else recent.permute(2, 0, 1, 3)
    return torch.cat([before, new])


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
    position: int,
) -> tuple[Tensor, Tensor, CausalState]:
    """Attends from one new token.

    It enters the sums, or the window, and then the token that leaves the window enters the sums.
    """
    add = Tensor.addcmul_ if overwrite_state else torch.addcmul
    # columns are far apart in memory, and are read for every feature of every hypothesis
    e, f = (matrix.transpose(1, 2).contiguous() for matrix in (key_matrix, value_matrix))  # (G, 1, k)
    key, value = key[0, :, :, None], value[0, :, :, None]  # (B, H, 1, d)
    recent_keys, recent_values = state.recent_keys, state.recent_values
    window = recent_keys.size(2)
    if window:
        recent_keys, recent_values = torch.cat([recent_keys, key], 2), torch.cat([recent_values, value], 2)
        key, value = recent_keys[:, :, :1], recent_values[:, :, :1]
        recent_keys, recent_values = recent_keys[:, :, 1:], recent_values[:, :, 1:]
    key_sums = add(state.key_sums, key.transpose(2, 3), e)
    value_sums = add(state.value_sums, value.transpose(2, 3), f)
    q = query.permute(1, 2, 0, 3)
    of_window = None
    if window:
        missing = torch.arange(window, device=query.device) < window - 1 - position
        of_window = (q @ recent_keys.transpose(2, 3)).masked_fill(missing, -torch.inf)
    probabilities, dropped = _softmax(q @ key_sums, slot_mask, of_window, dropout)  # (B, H, 1, k + w)
    slots = key_sums.size(3)
    out = dropped[..., :slots] @ value_sums.transpose(2, 3)
    if window:
        out = out + dropped[..., slots:] @ recent_values
    state = CausalState(key_sums, value_sums, recent_keys, recent_values)
    return out.permute(2, 0, 1, 3), probabilities.permute(2, 0, 1, 3), state


def _softmax(
    scores: Tensor, slot_mask: Tensor | None, of_window: Tensor | None, dropout: Callable[[Tensor], Tensor] | None
) -> tuple[Tensor, Tensor]:
    """The probabilities of the slots and, after them, of the window's tokens, before and after dropout."""
    if slot_mask is not None:
        scores = scores.masked_fill(~slot_mask, -torch.inf)
    if of_window is not None:
        scores = torch.cat([scores, of_window], 3)
    probabilities = torch.softmax(scores, dim=-1)
    return probabilities, probabilities if dropout is None else dropout(probabilities)


def _split(x: Tensor, chunks: int) -> Tensor:
    """(T, ...) to (m, c, ...), with zeros at the end where m does not divide T."""
    missing = -len(x) % chunks
    if missing:
        x = torch.cat([x, x.new_zeros(missing, *x.shape[1:])])
    return x.unflatten(0, (chunks, len(x) // chunks))
