"""Causal attention in two levels: to the last tokens one by one, and to all before them in two levels."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import Call, IncrementalState, ProjectedAttention
from linformer_fairseq.modules.level_sizes import CAUSAL, EXACT_BELOW, SizeRule, TwoLevelOptions
from linformer_fairseq.modules.ops.causal_two_level import (
    causal_two_level_attention,
    causal_two_level_weights,
    exact_tokens,
)
from linformer_fairseq.modules.ops.causal_two_level_steps import History, history_of, step
from linformer_fairseq.modules.ops.padding import clear_padding
from linformer_fairseq.modules.ops.two_level import LevelSizes
from linformer_fairseq.modules.projections import check_dims
from linformer_fairseq.modules.registry import register_attention


@register_attention("two-level", TwoLevelOptions, causal=True)
class CausalTwoLevelAttention(ProjectedAttention):
    r"""Causal attention in two levels: in a decoder a drop-in for fairseq's `MultiheadAttention`, with its parameters.

    A block of q queries attends one by one to its own tokens, as far as they are past, and to the window of w tokens
    before it. The windows that end before that one it sees by their means; m of them, which its first query and the
    q - 1 before it attend to most, it opens, to attend to their tokens one by one as well, all in one softmax. No later
    token enters anything of this. The first `exact_below` tokens get full attention, and so do as many as it takes to
    have m windows.

    It costs O(T (N / w + m w + q)), and a step of a search O(N / w + m w + q) at any position: keys and values stay
    where they are, and those attended to are gathered (`linformer_fairseq.modules.ops.causal_two_level_steps`).

    Args:
        args, options: as `ProjectedAttention` and fairseq take them; `self_attention` has to be true.
        projected_dim: k, the number of windows of N tokens, unless `slot_width` is given.
        max_positions: N, the longest target in tokens.
        open_slots, slot_width, block_size: m, w and q; by default they follow from N and k, as `SizeRule` says. Blocks
            are rounded up to whole windows.
        exact_below: how many first tokens get full attention, at least.

    Raises:
        ValueError: for what no kind supports, cross-attention, k < 1 or k > N, and m, w or q below 1.
    """

    causal = True
    side = "target"

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        projected_dim: int,
        max_positions: int,
        open_slots: int | None = None,
        slot_width: int | None = None,
        block_size: int | None = None,
        exact_below: int = EXACT_BELOW,
        **options: Any,
    ) -> None:
        check_dims(projected_dim)
        super().__init__(embed_dim, num_heads, *args, max_positions=max_positions, **options)
        if not self.self_attention:
            raise ValueError("causal two-level attention is self-attention; pass self_attention=True")
        rule = SizeRule(projected_dim, CAUSAL, open_slots, slot_width, block_size, exact_below)
        width, opened, block = rule.cut(max_positions)
        self.sizes = LevelSizes(width, opened, -(-block // width) * width)
        self.exact = exact_tokens(self.sizes, exact_below)

    def extra_repr(self) -> str:
        width, opened, block = self.sizes
        return (
            f"N={self.max_positions}, slot_width={width}, open_slots={opened}, block_size={block}, exact={self.exact}"
        )

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        state = call.incremental_state
        history: History | None = None if state is None else self.cached(state).get("history")
        position = 0 if history is None else history.position
        key, value, mask = self.keys_and_values(call, position)
        if len(key) != len(call.query):
            raise ValueError(
                f"causal two-level attention needs a key for every query, not {len(key)} for {len(call.query)}"
            )
        keys = clear_padding(key, mask)
        values = keys if value is key else clear_padding(value, mask)
        q, k, v = (
            linear(x).unflatten(2, (self.num_heads, self.head_dim))
            for linear, x in ((self.q_proj, call.query), (self.k_proj, keys), (self.v_proj, values))
        )
        dropout, weights = self.dropout_probability, None
        if history is None:
            out = causal_two_level_attention(q, k, v, self.sizes, self.exact, dropout)
            if call.need_weights:
                weights = causal_two_level_weights(q, k, self.sizes, self.exact)
            if state is not None:
                history = history_of(q, k, v, self.sizes, self.exact)
        else:
            out, weights, history = self._steps(history, q, k, v, call.need_weights)
        if state is not None:
            self.cache(state, {"history": history})
        if weights is not None:
            if mask is not None:
                weights = weights.masked_fill(F.pad(mask, (position, 0))[:, None, None], 0.0)
            weights = weights.transpose(0, 1) if call.by_head else weights.mean(1)
        return self.out_proj(out.flatten(2)), weights

    def _steps(
        self, history: History, query: Tensor, key: Tensor, value: Tensor, need_weights: bool
    ) -> tuple[Tensor, Tensor | None, History]:
        """The output (T, B, H, d), the weights (B, H, T, n) and the history for some more tokens (T, B, H, d)."""
        outs, rows, longest = [], [], history.position + len(query)
        for q, k, v in zip(query.split(1), key.split(1), value.split(1), strict=True):
            out, weights, history = step(history, q, k, v, self.dropout_probability, need_weights)
            outs.append(out)
            if weights is not None:
                rows.append(F.pad(weights, (0, longest - weights.size(3))))
        return torch.cat(outs), torch.cat(rows, 2) if rows else None, history

    def reorder_incremental_state(self, incremental_state: IncrementalState, new_order: Tensor) -> IncrementalState:
        """Keeps the hypotheses that stay, in their new order."""
        cached = self.cached(incremental_state)
        if not cached:
            return incremental_state
        return self.cache(incremental_state, {"history": cached["history"].reordered(new_order)})
