"""Exact causal Linformer attention: in chunks for training, and with a state of constant size for decoding.

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

Shapes: T tokens, B the batch, H heads, d features per head, s <= k slots, w tokens of the window; m chunks of c tokens.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from linformer_fairseq.modules.ops.blocks import from_blocks, to_blocks
from linformer_fairseq.modules.ops.causal_products import slots_to_tokens, tokens_to_slots
from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.ops.sliding_window import SlidingWindow

SINGLE_CHUNK = 192  # the longest text, in tokens, that is fastest in one chunk
CHUNK = 64  # the tokens of a chunk with which longer texts are fastest

Dropout = Callable[[Tensor], Tensor]
NO_DROPOUT = nn.Identity()
Probabilities = tuple[Tensor, Tensor | None]
"""What a query's softmax gives to slots, (B, H, T, s), and to all tokens so far, (B, H, T, n), zero outside of its
window, or None without one; before dropout, in float32 or better."""


class Tokens(NamedTuple):
    """T tokens that attend to themselves and to those before them."""

    query: Tensor  # (B, H, T, d), scaled
    key: Tensor  # (B, H, T, d), without bias and zero at padded positions
    value: Tensor  # (B, H, T, d), like the keys
    key_matrix: Tensor  # (s, T), the columns of E for the tokens w places before these; zeros where there are none
    value_matrix: Tensor  # (s, T), those of F


class CausalState(NamedTuple):
    """What decoding keeps of the tokens so far, however many they are."""

    position: int  # the tokens so far
    key_sums: Tensor  # A_K, (B, H, d, k), in float32 or better
    value_sums: Tensor  # A_V, (B, H, d, k), in float32 or better
    recent_keys: Tensor  # the keys of the last w tokens, or of all if there are fewer, (B, H, up to w, d)
    recent_values: Tensor  # the values of these tokens, (B, H, up to w, d)

    @classmethod
    def empty(cls, query: Tensor, slots: int) -> "CausalState":
        """The state before any token, for queries (B, H, T, d)."""
        batch, heads, _, width = query.shape
        sums = query.new_zeros(batch, heads, width, slots, dtype=at_least_float32(query.dtype))
        recent = sums.new_zeros(batch, heads, 0, width)
        return cls(0, sums, sums.clone(), recent, recent)

    def rows(self, order: Tensor) -> "CausalState":
        """Copies of some of the rows, in this order."""
        index = order.view(-1, 1, 1, 1)
        # index_select copies with one thread on a CPU, gather with all
        return CausalState(self.position, *(x.gather(0, index.expand(-1, *x.shape[1:])) for x in self[1:]))


def causal_attention(
    tokens: Tokens,
    window: int = 0,
    masks_empty_slots: bool = False,
    dropout: Dropout = NO_DROPOUT,
    state: CausalState | None = None,
    overwrites_state: bool = False,
    need_probabilities: bool = False,
    chunk: int | None = None,
) -> tuple[Tensor, Probabilities | None, CausalState | None]:
    """Attends from every token to the slots of the tokens up to it, or up to its window, and to the window's tokens.

    In one pass this takes time O(T (k + c) d) and memory O(T (k + c) + T/c k d) a head.

    Args:
        window: w, 0 for none.
        masks_empty_slots: whether slot c takes part only once c + 1 tokens have entered the slots.
        dropout: falls on the probabilities.
        state: of the tokens before these; None where there are none, and no state is wanted.
        overwrites_state: the state is not needed any more, and its memory may be used for the new one.
        need_probabilities: return them.
        chunk: c, at most; by default the fastest.

    Returns:
        The output (B, H, T, d), the probabilities where they are needed, and the state after these tokens where one was
        given.
    """
    query, key, value, key_matrix, value_matrix = tokens
    length, first = query.size(2), (0 if state is None else state.position) - window
    of_values = query.dtype if state is None else state.key_sums.dtype
    of_scores = at_least_float32(of_values)
    q, k, e = (x.to(of_scores) for x in (query, key, key_matrix))
    tokens = Tokens(q, k, value.to(of_values), e, value_matrix.to(of_values))
    hidden = _hidden_slots(length, len(e), first, masks_empty_slots, query.device)
    with torch.autocast(query.device.type, enabled=False):  # the types are chosen already
        if state is not None and length == 1:
            out, probabilities, state = _next_token(
                tokens, window, hidden, dropout, state, overwrites_state, need_probabilities
            )
        else:
            chunk = chunk or (SINGLE_CHUNK if length <= SINGLE_CHUNK else CHUNK)
            out, probabilities, state = _in_chunks(tokens, window, hidden, dropout, state, chunk, need_probabilities)
    return out.to(query.dtype), probabilities, state


def _hidden_slots(length: int, slots: int, first: int, masks_empty: bool, device: torch.device) -> Tensor | None:
    """The slots that take no part in the softmax of a query, (T, s) or (T, 1); None where all do for every query.

    Args:
        first: the last token in the slots of the first query; none where it is below 0.
    """
    if first >= (slots - 1 if masks_empty else 0):
        return None
    last = torch.arange(first, first + length, device=device)[:, None]
    return last < (torch.arange(slots, device=device) if masks_empty else 0)


def _in_chunks(
    tokens: Tokens,
    window: int,
    hidden: Tensor | None,
    dropout: Dropout,
    state: CausalState | None,
    chunk: int,
    need_probabilities: bool,
) -> tuple[Tensor, Probabilities | None, CausalState | None]:
    """Attends from any number of tokens."""
    query, key, value, key_matrix, value_matrix = tokens
    heads, length, slots = query.shape[:2], query.size(2), len(key_matrix)
    chunks = -(-length // chunk)
    chunk = -(-length // chunks)  # all of one size, as far as that goes

    def split(x: Tensor) -> Tensor:
        """(B, H, T, d) to (m, B H, c, d)."""
        return to_blocks(x, chunk).flatten(1, 2)

    def join(x: Tensor) -> Tensor:
        """(m, B H, c, d) to (B, H, T, d)."""
        return from_blocks(x.unflatten(1, heads), length)

    if state is not None:
        key, value = torch.cat([state.recent_keys, key], 2), torch.cat([state.recent_values, value], 2)
    near, all_keys, all_values, old_key, old_value = SlidingWindow(window, 0), key, value, key, value
    if window:  # the tokens that have left the windows of these queries are the first of those around them
        all_keys, all_values = (near.padded(x, length, chunk) for x in (key, value))
        old_key, old_value = (x[:, :, : chunks * chunk] for x in (all_keys, all_values))
    q, k, v = split(query).contiguous(), split(old_key).transpose(2, 3).contiguous(), split(old_value).transpose(2, 3)
    e, f = (to_blocks(matrix.t(), chunk).contiguous() for matrix in (key_matrix, value_matrix))  # (m, c, s)
    starts = (None, None) if state is None else (state.key_sums.flatten(0, 1), state.value_sums.flatten(0, 1))

    scores, key_sums = tokens_to_slots(q, k, e, starts[0])  # (m, B H, c, s)
    if hidden is not None:
        scores = scores.masked_fill(to_blocks(hidden, chunk)[:, None], -torch.inf)
    if window:
        every = torch.ones(1, key.size(2), dtype=torch.bool, device=query.device)
        unseen = ~near.mask(every, length, chunk).triu(1)
        near_keys, near_values = (near.of_blocks(x, chunk).flatten(1, 2) for x in (all_keys, all_values))
        scores = torch.cat([scores, (q @ near_keys.transpose(2, 3)).masked_fill(unseen, -torch.inf)], 3)
    probabilities = torch.softmax(scores, 3)
    dropped = dropout(probabilities).to(v.dtype)
    of_slots = dropped[..., :slots].contiguous() if window else dropped
    out, value_sums = slots_to_tokens(of_slots, v.contiguous(), f, starts[1])  # (m, B H, c, d)
    if window:
        out = out + dropped[..., slots:] @ near_values

    if state is not None and key_sums is not None and value_sums is not None:
        recent = slice(max(0, key.size(2) - window), None)
        key_sums, value_sums = key_sums.unflatten(0, heads), value_sums.unflatten(0, heads)
        state = CausalState(state.position + length, key_sums, value_sums, key[:, :, recent], value[:, :, recent])
    if not need_probabilities:
        return join(out), None, state
    of_window = None
    if window:
        n = length if state is None else state.position
        of_window = near.over_tokens(probabilities[..., slots:].unflatten(1, heads), n, length)
    return join(out), (join(probabilities[..., :slots]), of_window), state


def _next_token(
    tokens: Tokens,
    window: int,
    hidden: Tensor | None,
    dropout: Dropout,
    state: CausalState,
    overwrites_state: bool,
    need_probabilities: bool,
) -> tuple[Tensor, Probabilities | None, CausalState]:
    """Attends from one new token, which enters the window; the one that leaves it enters the sums."""
    query, key, value, key_matrix, value_matrix = tokens
    position, key_sums, value_sums, recent_keys, recent_values = state
    if window:
        recent_keys, recent_values = torch.cat([recent_keys, key], 2), torch.cat([recent_values, value], 2)
        key, value = recent_keys[:, :, :-window], recent_values[:, :, :-window]
        recent_keys, recent_values = recent_keys[:, :, -window:], recent_values[:, :, -window:]
    if key.size(2):
        add = Tensor.addcmul_ if overwrites_state else torch.addcmul
        # columns are far apart in memory, and are read for every feature of every hypothesis
        e, f = (matrix.t().contiguous() for matrix in (key_matrix, value_matrix))  # (1, k)
        key_sums = add(key_sums, key.transpose(2, 3), e)
        value_sums = add(value_sums, value.transpose(2, 3), f)
    scores = query @ key_sums  # (B, H, 1, k)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    if window:
        scores = torch.cat([scores, query @ recent_keys.transpose(2, 3)], 3)
    probabilities = torch.softmax(scores, 3)
    dropped = dropout(probabilities)
    slots = key_sums.size(3)
    out = dropped[..., :slots] @ value_sums.transpose(2, 3)
    if window:
        out = out + dropped[..., slots:] @ recent_values
    state = CausalState(position + 1, key_sums, value_sums, recent_keys, recent_values)
    if not need_probabilities:
        return out, None, state
    of_window = F.pad(probabilities[..., slots:], (state.position - recent_keys.size(2), 0)) if window else None
    return out, (probabilities[..., :slots], of_window), state
