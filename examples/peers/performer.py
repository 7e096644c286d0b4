"""Performer's attention, by the package performer-pytorch."""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from linformer_fairseq.modules.base import Call
from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.registry import register_attention
from peers.base import PeerAttention, PeerOptions, full_precision, package


@dataclass
class PerformerOptions(PeerOptions):
    """How many random features there are."""

    linformer_features: int | None = field(
        default=None,
        metadata={
            "help": "performer: random features of a head (default: d ln d, for heads of d features)",
        },
    )


@register_attention(
    "performer",
    PerformerOptions,
    "in self-attention alone, of the package performer-pytorch",
    defaults={"linformer_attention": "encoder"},
    self_attention_only=True,
)
class PerformerAttention(PeerAttention):
    r"""Performer's approximation of encoder self-attention (Choromanski et al., 2021, section 2.2: FAVOR+).

    Random features φ, orthogonal and positive, turn the softmax into a product that can be made from its other end:

        exp(q · k / √d) ≈ φ(q) · φ(k)        out = φ(Q) (φ(K)ᵀ V) / (φ(Q) φ(K)ᵀ 1)

    The features are drawn when a model is built, saved in its checkpoints, and stay as they are. It is computed in
    float32 or better, as sums over all tokens are. The package clears the values of padding, but counts its keys. Here
    their features are zero, so that a sentence does not depend on its padding.
    """

    name = "performer"

    def __init__(self, *args: Any, features: int | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        with package("performer-pytorch"):
            from performer_pytorch import FastAttention
            from performer_pytorch.performer_pytorch import (
                causal_linear_attention_noncuda,
                linear_attention,
                softmax_kernel,
            )
        self.core = FastAttention(self.head_dim, nb_features=features)
        self.feature_map = softmax_kernel
        self.linear_attention = causal_linear_attention_noncuda if self.causal else linear_attention

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        projected = (linear(x) for linear in (self.q_proj, self.k_proj, self.v_proj))
        heads = [y.unflatten(2, (self.num_heads, self.head_dim)).permute(1, 2, 0, 3) for y in projected]
        query, key, value = (y.to(at_least_float32(y.dtype)) for y in heads)
        with full_precision(x):
            out = self._mixed(query, key, value, mask)
        return out.to(heads[0].dtype).permute(2, 0, 1, 3).flatten(2)

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """What the core computes, (B, H, n, d), without padded keys; for an empty sentence any numbers."""
        if mask is None:
            return self.core(query, key, value)
        padded = (mask & ~mask.all(1, keepdim=True))[:, None, :, None]
        # features are scaled by the largest of a sentence, which has to be one of its own
        key = torch.where(padded, key[:, :, :1], key)
        features = partial(self.feature_map, projection_matrix=self.core.projection_matrix)
        of_keys = features(key, is_query=False).masked_fill(padded, 0.0)
        return self.linear_attention(features(query, is_query=True), of_keys, value)


@register_attention(
    "performer", PerformerOptions, "of the package performer-pytorch, for models that do not search", causal=True
)
class CausalPerformerAttention(PerformerAttention):
    r"""Performer's approximation of a decoder's self-attention, in which the sums over keys are those so far.

    They are the package's, in plain torch, on any device. Its features of keys are scaled by the largest of a sentence,
    to which they add a small number: what comes later would show. Here they are as they are, at most exp(|w|² / 2) for
    a row w of the random matrix. There is no state for a search.
    """

    causal = True

    def attend(self, call: Call) -> tuple[Tensor, Tensor | None]:
        if call.incremental_state is not None:
            raise ValueError("performer keeps no state for a search: give another --linformer-decoder-projection")
        return super().attend(call)

    def _mixed(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        matrix = self.core.projection_matrix.to(key.dtype)
        scaled = key * self.head_dim**-0.25
        exponents = scaled @ matrix.t() - scaled.square().sum(-1, keepdim=True) / 2
        of_query = self.feature_map(query, projection_matrix=matrix, is_query=True)
        return self.linear_attention(of_query, exponents.exp() * len(matrix) ** -0.5, value)
