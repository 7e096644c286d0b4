"""Linformer attention: to k slots that a projection of the length axis makes of n keys and values."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from linformer_fairseq.modules.base import Call, bias_of, is_plain, without_bias
from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.ops.softmax_attention import softmax_attention
from linformer_fairseq.modules.ops.token_weights import weights_of_slots
from linformer_fairseq.modules.projections import (
    ConvProjection,
    LinearProjection,
    MaxPool,
    MeanPool,
    Projection,
    project_both,
)
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention
from linformer_fairseq.modules.source_attention import Source, SourceAttention

SHARINGS = ("headwise", "key-value", "layerwise")


@dataclass
class SlotOptions(AttentionOptions):
    """The options of attention whose projection has no parameters, and stands for both E and F."""

    projection: ClassVar[type[Projection]]

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        return [{"key_projection": self.build_projection(k, layers.max_positions)} for k in layers.projected_dims]

    def build_projection(self, projected_dim: int, max_positions: Any) -> Projection:
        """A projection with these options."""
        return self.projection(projected_dim, max_positions)


@dataclass
class LearnedSlotOptions(SlotOptions):
    """The options of learned E and F: what shares them, and whether they are trained."""

    needs_length = True

    linformer_sharing: str = field(
        default="headwise",
        metadata={
            "choices": SHARINGS,
            "help": "what shares a projection: headwise (E and F per layer), key-value (E = F, one per layer), "
            "layerwise (one for keys and values of all layers)",
        },
    )
    linformer_freeze_projection: bool = field(
        default=False,
        metadata={"help": "do not train E and F: keep them as initialised, or as the checkpoint has them"},
    )

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        """E and F of every layer, shared as asked for; without F, E is for the values too."""
        dims, trained = layers.projected_dims, not self.linformer_freeze_projection
        names = ["key_projection", "value_projection"] if self.linformer_sharing == "headwise" else ["key_projection"]

        def build(k: int) -> dict[str, Any]:
            return {name: self.build_projection(k, layers.max_positions).requires_grad_(trained) for name in names}

        if self.linformer_sharing != "layerwise":
            return [build(k) for k in dims]
        if len(set(dims)) > 1:
            raise ValueError(
                f"--linformer-sharing layerwise needs one {layers.flag} for all layers, not "
                f"{','.join(map(str, dims))}{layers.advice}"
            )
        return [build(dims[0])] * len(dims)


@dataclass
class LinearOptions(LearnedSlotOptions):
    """The options of E and F that are matrices: also which slots take part in the softmax."""

    projection = LinearProjection
    k_within_length = True

    linformer_mask_empty_slots: bool = field(
        default=False,
        metadata={
            "help": "linear projections: slot c takes part in the softmax from length c + 1 on, in causal attention "
            "once c + 1 tokens lie before the window"
        },
    )

    def build_projection(self, projected_dim: int, max_positions: Any) -> Projection:
        return LinearProjection(projected_dim, max_positions, mask_empty_slots=self.linformer_mask_empty_slots)


class MeanPoolOptions(SlotOptions):
    projection = MeanPool


class MaxPoolOptions(SlotOptions):
    projection = MaxPool


class ConvOptions(LearnedSlotOptions):
    projection = ConvProjection


class Slots(NamedTuple):
    """The projected keys and values of B sentences."""

    keys: Tensor  # (B, H, s, d)
    values: Tensor  # (B, H, s, d)
    mask: Tensor | None  # true where a slot takes part in the softmax, (B, 1, 1, s); None where all do
    lengths: Tensor | None  # tokens of each sentence, (B,); None where all have n
    tokens: int  # n


@register_attention("conv", ConvOptions, "kernel = stride = N/k")
@register_attention("max-pool", MaxPoolOptions)
@register_attention("mean-pool", MeanPoolOptions)
@register_attention("linear", LinearOptions, "Linformer: learned E and F", defaults={"linformer_window": 0})
class LinformerMultiheadAttention(SourceAttention[Slots]):
    r"""Linformer attention (Wang et al., 2020, equation 7), a drop-in for fairseq's `MultiheadAttention`.

    For one sentence of n tokens `X` and one head, with learned or pooling projections `E`, `F` of the length axis:

        K̄ = (E X) W_K + b_K        V̄ = (F X) W_V + b_V        both (k, d)
        out = softmax(Q K̄ᵀ / √d) V̄

    It costs O(T k) for T queries instead of O(T n). The biases come after the projection, so that the key bias drops
    out of the softmax as it does in full attention. Products are made in an order that costs little: E X before W_K for
    s <= n, and on a processor W_Q K̄ᵀ and V̄ W_O before anything of the queries where slots are few. In a search the
    slots of a sentence are computed once, and kept.

    What a slot gets of the attention weights is spread over its tokens by |F|, which need not add up to 1, normalised:
    the weights tell how much a token is looked at, and not what it adds to the output.

    Args:
        args, options: as `BaseAttention` and fairseq take them.
        key_projection: E.
        value_projection: F; None takes E for the values as well (key-value sharing).

    Raises:
        ValueError: for what no kind supports, and for E and F that do not fit together.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        *args: Any,
        key_projection: Projection,
        value_projection: Projection | None = None,
        **options: Any,
    ) -> None:
        value_projection = key_projection if value_projection is None else value_projection
        super().__init__(embed_dim, num_heads, *args, max_positions=key_projection.longest, **options)
        check_projections(key_projection, value_projection)
        self.key_projection = key_projection
        self.value_projection = value_projection

    def compress(self, source: Source) -> Slots:
        (key, value, _, lengths), n, e, f = source, len(source.key), self.key_projection, self.value_projection
        if e.num_slots(n) <= n:
            key_slots, value_slots = project_both(e, f, key, value, lengths)
            keys, values = self.k_proj(key_slots), self.v_proj(value_slots)
        else:
            keys, values = _after(e, self.k_proj, key, lengths), _after(f, self.v_proj, value, lengths)
        return Slots(self.split_heads(keys), self.split_heads(values), e.slot_mask(n, lengths), lengths, n)

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        slots = 0 if call.key is None else self.key_projection.num_slots(len(call.key))
        shared = call.key is None or call.key.size(1) != call.query.size(1)
        if shared or call.need_weights or not self._folding_pays(call.query, slots):
            return super().attend(call)
        return self._folded(call.query, self.memory_of(call).memory), None

    def attend_to(
        self, query: Tensor, memory: Slots, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        keys, values, mask, lengths, tokens = memory
        queries, dropout = self.split_heads(self.q_proj(query)), self.dropout_probability
        out, probabilities = softmax_attention(queries, keys, values, mask, dropout, need_weights)
        if probabilities is None:
            return out, None
        matrix = self.value_projection.matrix(tokens, lengths, probabilities)
        return out, weights_of_slots(probabilities, matrix, lengths, by_head)

    def _folding_pays(self, query: Tensor, slots: int) -> bool:
        """Whether a processor takes less time with W_Q and W_O multiplied into the slots of each sentence.

        Each query then costs H s multiplications of all features instead of d; the matrices of a sentence count twice,
        as they are written and read again. Torch's kernels for half precision are faster.
        """
        full = query.dtype == at_least_float32(query.dtype)
        if query.device.type != "cpu" or not full or self.value_convolution is not None:
            return False
        queries, width = len(query), self.embed_dim
        pays = slots * (2 * width + queries * self.num_heads) < queries * (width + slots)
        return pays and is_plain(self.q_proj) and is_plain(self.out_proj)

    def _folded(self, query: Tensor, memory: Slots) -> Tensor:
        """The output (T, B, C) in another order of products, with scores in float32 or better:

        S = (X W_Q + b_Q) K̄ᵀ = X (W_Q K̄ᵀ) + b_Q K̄ᵀ        O = (P V̄) W_O + b_O = P (V̄ W_O) + b_O
        """
        keys, values, mask = memory.keys * self.scaling, memory.values, memory.mask
        heads, slots, _ = keys.shape[1:]
        with torch.autocast("cpu", enabled=False):  # scores would be rounded, or be infinite
            keys, x, bias = keys.to(query.dtype), query.transpose(0, 1), self.q_proj.bias
            matrix = _by_head(keys, self.q_proj.weight.unflatten(0, (heads, -1))).transpose(1, 2)
            if bias is None:
                found = torch.bmm(x, matrix)
            else:
                of_bias = (keys * bias.view(heads, 1, -1)).sum(3).flatten(1)
                found = torch.baddbmm(of_bias[:, None], x, matrix)
        found = found.unflatten(2, (heads, slots))  # (B, T, H, s)
        if mask is not None:
            found = found.masked_fill(~mask, -torch.inf)
        probabilities = self.dropout_module(found.softmax(3)).to(values.dtype).flatten(2)
        matrix = _by_head(values, self.out_proj.weight.t().unflatten(0, (heads, -1)))
        bias = self.out_proj.bias
        out = probabilities @ matrix if bias is None else torch.baddbmm(bias, probabilities, matrix)
        return out.transpose(0, 1)


def _after(projection: Projection, linear: nn.Linear, x: Tensor, lengths: Tensor | None) -> Tensor:
    """The slots that a projection makes of what a linear layer makes of tokens `x` (n, B, D): (s, B, C)."""
    slots, bias = projection(without_bias(linear, x), lengths), bias_of(linear)
    return slots if bias is None else slots + bias


def _by_head(slots: Tensor, weight: Tensor) -> Tensor:
    """The slots (B, H, s, d) of each head times its part of a weight, (H, d, C): (B, H s, C)."""
    rows = slots.transpose(0, 1).flatten(1, 2)  # (H, B s, d)
    return torch.bmm(rows, weight).unflatten(1, (len(slots), -1)).transpose(0, 1).flatten(1, 2)


def check_projections(key: Projection, value: Projection) -> None:
    """Refuses, with a ValueError, projections of other kinds or sizes."""
    if (type(key), key.extra_repr()) != (type(value), value.extra_repr()):
        raise ValueError("the key and value projections must agree in kind, k and N")
