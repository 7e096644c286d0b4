"""Causal Linformer attention: to the slots of the tokens so far, with a state of constant size for decoding."""

from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import BaseAttention, Call, bias_of, without_bias
from linformer_fairseq.modules.linformer_attention import LinearOptions, check_projections
from linformer_fairseq.modules.ops.causal_linformer import CausalState, Tokens, causal_attention
from linformer_fairseq.modules.ops.token_weights import weights_of_growing_slots, without_padding
from linformer_fairseq.modules.projections import LinearProjection
from linformer_fairseq.modules.registry import LayerShapes, register_attention


@dataclass
class CausalOptions(LinearOptions):
    """The options of E and F, and how many of the k are not slots but the last tokens."""

    linformer_window: int | None = field(
        default=None,
        metadata={
            "help": "causal attention: how many of its k are the last tokens, attended to one by one, and not slots of "
            "earlier ones",
        },
    )

    def validate(self) -> None:
        super().validate()
        if self.linformer_window is not None and self.linformer_window < 0:
            raise ValueError(f"--linformer-window must be at least 0, not {self.linformer_window}")

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        dims, given = layers.projected_dims, self.linformer_window
        windows = [k // 2 if given is None else given for k in dims]
        slots = tuple(k - window for k, window in zip(dims, windows, strict=True))
        if min(slots) < 1:
            raise ValueError(
                f"--linformer-window {given} leaves no slot of {layers.flag} {min(dims)}; choose a smaller one"
            )
        arguments = super().arguments(replace(layers, projected_dims=slots))
        return [{**own, "window": window} for own, window in zip(arguments, windows, strict=True)]


@register_attention("linear", CausalOptions, causal=True)
class CausalLinformerAttention(BaseAttention):
    r"""Causal Linformer attention, a drop-in for fairseq's `MultiheadAttention` in a decoder.

    Query i attends to the slots of the tokens 0 ... i alone, E[:, :i+1] X[:i+1] and F[:, :i+1] X[:i+1]: no later token
    enters it, without any approximation. It costs O(T k), and decoding keeps two sums of the size of the slots instead
    of all keys and values (`linformer_fairseq.modules.ops.causal_linformer` has the formulas).

    Args:
        args, options: as `BaseAttention` and fairseq take them; `self_attention` has to be true.
        key_projection: E, which is linear.
        value_projection: F; None takes E for the values as well.
        window: how many tokens up to its own a query attends to one by one, beside k slots of those before them;
            decoding keeps their keys and values too.

    Raises:
        ValueError: for what no kind supports, for projections that depend on the whole length, and for E and F that do
            not fit together.
    """

    causal = True

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        key_projection: LinearProjection,
        value_projection: LinearProjection | None = None,
        window: int = 0,
        **options: Any,
    ) -> None:
        value_projection = key_projection if value_projection is None else value_projection
        super().__init__(embed_dim, num_heads, *args, max_positions=key_projection.max_positions, **options)
        check_projections(key_projection, value_projection)
        if window < 0:
            raise ValueError(f"the window must be at least 0 tokens, not {window}")
        if not isinstance(key_projection, LinearProjection):
            raise ValueError(
                f"causal Linformer attention needs a linear projection; {type(key_projection).__name__} depends on the "
                "whole length"
            )
        self.key_projection = key_projection
        self.value_projection = value_projection
        self.window = window

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        assert call.key is not None
        assert call.value is not None
        query, length = self.split_heads(self.q_proj(call.query) * self.scaling), len(call.query)
        position, state, cached = 0, None, self.cached(call.incremental_state)
        order = cached.get("order")
        if call.incremental_state is None:
            slots, window = self.key_projection.num_slots(length), min(self.window, length)
        else:  # later calls need all slots
            slots, window = self.key_projection.projected_dim, self.window
            state = cached["state"] if cached else CausalState.empty(query, slots)
            state = state if order is None else state.rows(order)
            position = state.position
        self.check_length(length, call.padding, position)
        matrices = (
            columns(projection.weight[:slots], position - window, length)
            for projection in (self.key_projection, self.value_projection)
        )
        key, value = without_bias(self.k_proj, call.key), without_bias(self.v_proj, call.value)
        out, probabilities, state = causal_attention(
            Tokens(query, self.split_heads(key), self.split_heads(value), *matrices),
            window,
            self.key_projection.masks_empty_slots,
            self.dropout_module,
            state,
            overwrites_state=order is not None or not cached,  # as nobody else holds it
            need_probabilities=call.need_weights,
        )
        if call.incremental_state is not None:
            self.cache(call.incremental_state, {"state": state})
        bias, key_bias = bias_of(self.v_proj), bias_of(self.k_proj)
        if bias is not None:  # whole under dropout too, whose probabilities add up to one on average
            if torch.is_grad_enabled() and key_bias is not None:
                bias = bias + 0.0 * key_bias  # which drops out, and of which torch's DDP waits for a gradient
            out = out + bias.view(self.num_heads, 1, self.head_dim)
        if probabilities is None:
            return out, None
        of_slots, of_window = probabilities
        if not call.by_head:  # one product for all heads
            of_slots = of_slots.mean(1, keepdim=True)
        matrix = columns(self.value_projection.weight[:slots], 0, position + length)
        weights = weights_of_growing_slots(of_slots, matrix, position - window)
        if of_window is not None:
            weights = weights + (of_window if call.by_head else of_window.mean(1, keepdim=True))
        return out, without_padding(weights, call.padding)

    def reordered(self, cached: dict[str, Any], new_order: Tensor) -> dict[str, Any]:
        """Notes the new order of hypotheses; the next token copies the state in that order, and can then be added to
        the copies in place."""
        order = cached.get("order")
        return {**cached, "order": new_order if order is None else order.index_select(0, new_order)}


def columns(matrix: Tensor, start: int, length: int) -> Tensor:
    """The columns of E or F (k, N) for `length` tokens from position `start` on, (k, length); zero before 0 and beyond
    N."""
    before = min(length, max(0, -start))
    found = matrix[:, max(0, start) : max(0, start + length)]
    beyond = length - before - found.size(1)
    return F.pad(found, (before, beyond)) if before or beyond else found
