"""Causal Linformer attention: to the slots of the tokens so far, with a state of constant size for decoding."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import Call, IncrementalState, ProjectedAttention
from linformer_fairseq.modules.linformer_attention import LinearOptions, check_projections
from linformer_fairseq.modules.ops.causal import CausalState, causal_attention
from linformer_fairseq.modules.ops.padding import clear_padding
from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.ops.token_weights import weights_of_slots, weights_of_window
from linformer_fairseq.modules.projections import LinearProjection
from linformer_fairseq.modules.registry import LayerShapes, register_attention

_TOKENS = "tokens"
"""The name of a tensor whose shape alone counts, (B, 0, tokens so far): reading a number would wait for the device."""


@dataclass
class CausalOptions(LinearOptions):
    """How many of the k are the last tokens, and the options of E and F."""

    linformer_window: int | None = field(
        default=None,
        metadata={
            "help": "causal attention: how many of its k are the last tokens, attended to one by one, and not slots of "
            "earlier ones"
        },
    )

    def validate(self) -> None:
        super().validate()
        if self.linformer_window is not None and self.linformer_window < 0:
            raise ValueError(f"--linformer-window must be at least 0, not {self.linformer_window}")

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        if layers.scalar_noise:
            raise ValueError("--quant-noise-scalar does not go with causal Linformer attention; leave one of them out")
        windows = [self._window(k, layers.flag) for k in layers.projected_dims]
        slots = tuple(k - window for k, window in zip(layers.projected_dims, windows, strict=True))
        arguments = super().arguments(replace(layers, projected_dims=slots))
        return [{**own, "window": window} for own, window in zip(arguments, windows, strict=True)]

    def _window(self, k: int, flag: str) -> int:
        """How many of k are tokens."""
        window = k // 2 if self.linformer_window is None else self.linformer_window
        if window >= k:
            raise ValueError(f"--linformer-window {window} leaves no slot of {flag} {k}; choose a smaller one")
        return window


@register_attention("linear", CausalOptions, causal=True)
class CausalLinformerAttention(ProjectedAttention):
    r"""Causal Linformer attention, a drop-in for fairseq's `MultiheadAttention` in a decoder.

    Query i attends to the slots of the tokens 0 ... i alone, E[:, :i+1] X[:i+1] and F[:, :i+1] X[:i+1]: no later token
    enters it, without any approximation. For all queries of a head at once, with Q/√d as Q:

        S = tril(Q Kᵀ) Eᵀ        P = softmax(S)        O = tril(P F) V

    It costs O(T k), and decoding keeps two sums of the size of the slots instead of all keys and values
    (`linformer_fairseq.modules.ops.causal`).

    Args:
        args, options: as `ProjectedAttention` and fairseq take them; `self_attention` has to be true.
        key_projection: E, which is linear.
        value_projection: F; None takes E for the values as well.
        window: how many tokens up to its own a query attends to one by one, beside k slots of those before them;
            decoding keeps their keys and values too.
        chunk_size: tokens that are computed at a time, by default the fastest number; it does not change the result.

    Raises:
        ValueError: for what no kind supports, for projections that depend on the whole length, for quantisation noise,
            and for E and F that do not fit together.
    """

    causal = True
    side = "target"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        key_projection: LinearProjection,
        value_projection: LinearProjection | None = None,
        window: int = 0,
        chunk_size: int | None = None,
        **options: Any,
    ) -> None:
        value_projection = key_projection if value_projection is None else value_projection
        super().__init__(embed_dim, num_heads, *args, max_positions=key_projection.max_positions, **options)
        check_projections(self, key_projection, value_projection)
        if window < 0:
            raise ValueError(f"the window must be at least 0 tokens, not {window}")
        if chunk_size is not None and chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1, not {chunk_size}")
        if not self.self_attention:
            raise ValueError("causal Linformer attention is self-attention; pass self_attention=True")
        if not isinstance(key_projection, LinearProjection):
            raise ValueError(
                f"causal Linformer attention needs a linear projection; {type(key_projection).__name__} depends on the "
                "whole length"
            )
        if self.q_noise > 0:
            raise ValueError("quantisation noise (--quant-noise-pq) does not go with causal Linformer attention")
        self.key_projection = key_projection
        self.value_projection = value_projection
        self.window = window
        self.chunk_size = chunk_size

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        query, incremental_state = call.query, call.incremental_state
        position, state, owned = 0, None, False
        if incremental_state is not None:
            position, state, owned = self._state(incremental_state, query)
        key, value, mask = self.keys_and_values(call, position)
        length, window = len(query), self.window
        if len(key) != length:
            raise ValueError(f"causal Linformer attention needs a key for every query, not {len(key)} for {length}")
        clean_key = clear_padding(key, mask)
        clean_value = clean_key if value is key else clear_padding(value, mask)
        if state is None:
            window = min(window, length)
        slots, slot_mask = self._slot_mask(length, window, position, growing=state is not None)
        key_matrix, value_matrix = (
            projection.columns(position - window, length)[:, :slots]
            for projection in (self.key_projection, self.value_projection)
        )
        out, probabilities, state = causal_attention(
            *self.heads_before_biases(query, clean_key, clean_value),
            key_matrix,
            value_matrix,
            slot_mask,
            self.dropout_module,
            self.chunk_size,
            state,
            overwrite_state=owned,
            need_probabilities=call.need_weights,
            window=window,
            position=position,
        )
        if incremental_state is not None and state is not None:
            tokens = query.new_empty(query.size(1), 0, position + length)
            self.cache(incremental_state, {**state._asdict(), _TOKENS: tokens})
        out = out.flatten(2)
        bias = self.late_value_bias()
        if bias is not None:  # whole under dropout too, whose probabilities add up to one on average
            out = out + bias
        weights = None
        if probabilities is not None:
            weights = self._weights_over_tokens(probabilities, slots, window, position, call.by_head)
            if mask is not None:
                weights = weights.masked_fill(F.pad(mask, (position, 0))[:, None], 0.0)
        return self.out_proj(out), weights

    def _slot_mask(self, length: int, window: int, position: int, growing: bool) -> tuple[int, Tensor | None]:
        """How many slots the queries need, and which of them take part for each, (T, s); None where all do.

        Args:
            growing: later steps will need all slots.
        """
        slots, device = self.key_projection.projected_dim, self.key_projection.weight.device
        first = position - window
        if self.key_projection.masks_empty_slots:
            if not growing:
                slots = min(slots, length)  # the others are empty for every query
            ones = (length, slots)
            return slots, self.length_cache.get(
                f"{ones} slots from {first} on",
                None,
                lambda _: torch.ones(ones, dtype=torch.bool, device=device).tril(first),
            )
        if not window:
            return slots, None
        has_slots = self.length_cache.get(
            f"{length} queries from {first} on", None, lambda _: torch.arange(first, first + length, device=device) >= 0
        )
        return slots, has_slots[:, None].expand(-1, slots)

    def _weights_over_tokens(
        self, probabilities: Tensor, slots: int, window: int, position: int, by_head: bool
    ) -> Tensor:
        """The weights of all tokens so far, from the probabilities (T, B, H, s + w) of slots and window."""
        probabilities = probabilities.permute(1, 2, 0, 3)
        probabilities = probabilities.to(at_least_float32(probabilities.dtype))
        columns = self.value_projection.columns(0, position + probabilities.size(2))[:, :slots]
        weights = weights_of_slots(probabilities[..., :slots], columns[None], by_head).tril(position - window)
        if window:
            weights = weights + weights_of_window(probabilities[..., slots:], position, by_head)
        return weights

    def _state(self, incremental_state: IncrementalState, query: Tensor) -> tuple[int, CausalState, bool]:
        """The number of tokens so far, the state after them, and whether nobody else holds that state's tensors."""
        buffer = self.cached(incremental_state)
        if not buffer:
            rows, dtype = (query.size(1), self.num_heads), at_least_float32(query.dtype)
            sums = [*rows, self.head_dim, self.key_projection.projected_dim]
            recent = [*rows, self.window, self.head_dim]
            return 0, CausalState(*(query.new_zeros(x, dtype=dtype) for x in (sums, sums, recent, recent))), True
        parts, order = [buffer[name] for name in CausalState._fields], buffer.get("order")
        if order is not None:
            # index_select copies with one thread on a CPU, gather with all
            index = order.view(-1, 1, 1, 1)
            parts = [x.gather(0, index.expand(-1, *x.shape[1:])) for x in parts]
        return buffer[_TOKENS].size(2), CausalState(*parts), order is not None

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Notes the new order of hypotheses; the next token copies the state in that order, and can then be added to
        the copies in place."""
        buffer = self.cached(incremental_state)
        if not buffer:
            return incremental_state
        order = buffer.get("order")
        order = new_order if order is None else order.index_select(0, new_order)
        return self.cache(incremental_state, {**buffer, "order": order})
