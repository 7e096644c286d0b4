"""Linformer attention: to k slots that a projection of the length axis makes of n keys and values."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from linformer_fairseq.modules.base import ProjectedAttention
from linformer_fairseq.modules.forward_cache import ForwardCache
from linformer_fairseq.modules.key_value_slots import key_value_slots, projecting_scores_pays
from linformer_fairseq.modules.ops.precision import rounds_to_half
from linformer_fairseq.modules.ops.projected_scores import projected_scores_attention
from linformer_fairseq.modules.ops.thresholds import thresholds
from linformer_fairseq.modules.ops.token_weights import weights_of_slots
from linformer_fairseq.modules.projections import (
    ConvProjection,
    LinearProjection,
    MaxPool,
    MeanPool,
    Projection,
)
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention
from linformer_fairseq.modules.source_attention import Source, SourceAttention

SHARINGS = ("headwise", "key-value", "layerwise")


@dataclass
class SlotOptions(AttentionOptions):
    """A projection without parameters, which does the work of E and F."""

    projection: ClassVar[type[Projection]]

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        return [{"key_projection": self.build_projection(k, layers.max_positions)} for k in layers.projected_dims]

    def build_projection(self, projected_dim: int, max_positions: int) -> Projection:
        """A projection with these options."""
        return self.projection(projected_dim, max_positions)


@dataclass
class LearnedSlotOptions(SlotOptions):
    """What shares E and F, and whether they learn."""

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
        """E and F of every layer, shared as asked for."""

        def build(k: int) -> Projection:
            projection = self.build_projection(k, layers.max_positions)
            return projection.requires_grad_(not self.linformer_freeze_projection)

        if self.linformer_sharing == "layerwise":
            dims = layers.projected_dims
            if len(set(dims)) > 1:
                raise ValueError(
                    f"--linformer-sharing layerwise needs one {layers.flag} for all layers, not "
                    f"{','.join(map(str, dims))}{layers.advice}"
                )
            shared_by_all = build(dims[0])
            return [{"key_projection": shared_by_all, "value_projection": shared_by_all}] * len(dims)
        arguments = []
        for k in layers.projected_dims:
            key = build(k)
            value = key if self.linformer_sharing == "key-value" else build(k)
            arguments.append({"key_projection": key, "value_projection": value})
        return arguments


@dataclass
class LinearOptions(LearnedSlotOptions):
    """Also which slots take part in the softmax."""

    projection = LinearProjection
    k_within_length = True

    linformer_mask_empty_slots: bool = field(
        default=False,
        metadata={
            "help": "linear projections: slot c takes part in the softmax from length c + 1 on, in causal attention "
            "once c + 1 tokens lie before the window"
        },
    )

    def build_projection(self, projected_dim: int, max_positions: int) -> Projection:
        return LinearProjection(projected_dim, max_positions, mask_empty_slots=self.linformer_mask_empty_slots)


@dataclass
class MeanPoolOptions(SlotOptions):
    projection = MeanPool


@dataclass
class MaxPoolOptions(SlotOptions):
    projection = MaxPool


@dataclass
class ConvOptions(LearnedSlotOptions):
    projection = ConvProjection


class Slots(NamedTuple):
    """The projected keys and values of B sentences, and the tokens that they come from."""

    keys: Tensor
    """(B, H, s, d)."""
    values: Tensor
    """(B, H, s, d)."""
    padding_mask: Tensor | None
    """(B, n or more), true at padded positions; None where there are none and no weights will be asked for."""
    lengths: Tensor
    """Tokens of each sentence, (B,)."""


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
    out of the softmax as it does in full attention. In a search the slots of a sentence are computed once, and kept.

    Args:
        args, options: as `ProjectedAttention` and fairseq take them.
        key_projection: E.
        value_projection: F; None takes E for the values as well (key-value sharing).

    Raises:
        ValueError: for what no kind supports, for quantisation noise where heads have projections of their own, and for
            E and F that do not fit together.
    """

    memory_type = Slots

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
        super().__init__(embed_dim, num_heads, *args, max_positions=key_projection.max_positions, **options)
        check_projections(self, key_projection, value_projection)
        if self.q_noise > 0 and key_projection.num_heads is not None:
            raise ValueError(
                "quantisation noise (--quant-noise-pq) needs projections that the heads share; "
                "choose another --linformer-sharing than none"
            )
        self.key_projection = key_projection
        self.value_projection = value_projection
        self.slot_cache = ForwardCache()

    def share(self, cache: ForwardCache, layers: Iterable[ProjectedAttention]) -> None:
        super().share(cache, layers)
        own = {id(self.key_projection)}
        if all({id(p) for p in layer.children() if isinstance(p, Projection)} == own for layer in layers):
            self.slot_cache = cache

    def share_lengths(self, cache: ForwardCache) -> None:
        super().share_lengths(cache)
        for projection in (self.key_projection, self.value_projection):
            projection.length_cache = cache

    def compress(self, source: Source) -> Slots:
        keys, values = key_value_slots(
            (self.key_projection, self.value_projection),
            (self.k_proj, self.v_proj),
            self.num_heads,
            source.key,
            source.value,
            source.lengths,
            self.slot_cache,
        )
        return Slots(keys, values, source.padding_mask, source.lengths)

    def attend_to(
        self, query: Tensor, memory: Slots, need_weights: bool, by_head: bool
    ) -> tuple[Tensor, Tensor | None]:
        keys, values, mask, lengths = memory
        slot_mask = None if mask is None else self._slot_mask(keys.size(2), lengths)
        if mask is None or not need_weights:
            return self.softmax_attention(query, keys, values, slot_mask), None
        out, probabilities = self.softmax_attention_with_probabilities(query, keys, values, slot_mask)
        n, longest = mask.size(1), min(mask.size(1), self.max_positions)
        matrix = self.value_projection.matrix(longest, lengths, probabilities.dtype)
        weights = weights_of_slots(probabilities, matrix, by_head).masked_fill(mask[:, None, :longest], 0.0)
        return out, F.pad(weights, (0, n - longest))

    def attend_without_memory(self, query: Tensor, source: Source) -> Tensor | None:
        """Projects scores over tokens instead of tokens, where that is faster."""
        n = len(source.key)
        if rounds_to_half(query):  # projected scores are made in float32
            return None
        if self.folding_pays(query, self.key_projection.num_slots(n)):
            return None
        projections = self.key_projection, self.value_projection
        linears, same_tokens = (self.k_proj, self.v_proj), source.value is source.key
        sizes, limits = (query.size(0), self.num_heads, n), thresholds(query.device)
        if not projecting_scores_pays(projections, linears, *sizes, same_tokens, limits):
            return None
        # no comprehension, which the compiler of torch 2.2 cannot follow here
        key_matrix = self.key_projection.matrix(n, source.lengths, query.dtype)[0, 0]
        value_matrix = self.value_projection.matrix(n, source.lengths, query.dtype)[0, 0]
        return self.out_proj(
            projected_scores_attention(
                *self.heads_before_biases(query, source.key, source.value),
                key_matrix,
                value_matrix,
                self.late_value_bias(),
                None if source.padding_mask is None else self._slot_mask(len(key_matrix), source.lengths),
                self.dropout_probability,
            )
        )

    def _slot_mask(self, slots: int, lengths: Tensor) -> Tensor | None:
        """(B, 1, 1, s), true where a slot takes part in the softmax; None where all do."""
        if not self.key_projection.masks_empty_slots:
            return None

        def mask(lengths: Tensor) -> Tensor:
            filled = self.key_projection.filled_slots(lengths).clamp(min=1)
            return (torch.arange(slots, device=lengths.device) < filled[:, None])[:, None, None]

        return self.length_cache.get(f"mask of {slots} slots, {self.key_projection.extra_repr()}", lengths, mask)


def check_projections(attention: ProjectedAttention, key: Projection, value: Projection) -> None:
    """Refuses projections that do not fit an attention or each other.

    Raises:
        ValueError: saying which.
    """
    for projection in (key, value):
        if projection.num_heads not in (None, attention.num_heads):
            raise ValueError(
                f"the projection was made for {projection.num_heads} heads, but the attention has {attention.num_heads}"
            )
    if (type(key), key.extra_repr()) != (type(value), value.extra_repr()):
        raise ValueError("the key and value projections must agree in kind, k, N and sharing of heads")
