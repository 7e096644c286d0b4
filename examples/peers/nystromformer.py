"""Nyströmformer's attention, by the package nystrom-attention."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.registry import register_attention
from peers.base import PeerAttention, PeerOptions, full_precision, package


@dataclass
class NystromformerOptions(PeerOptions):
    """How many landmarks there are."""

    linformer_landmarks: int = field(
        default=64,
        metadata={
            "help": "nystromformer: landmarks, the means of neighbouring tokens that stand for all",
        },
    )


@register_attention(
    "nystromformer",
    NystromformerOptions,
    "in the encoder alone, of the package nystrom-attention",
    defaults={"linformer_attention": "encoder"},
    self_attention_only=True,
)
class NystromformerAttention(PeerAttention):
    r"""Nyströmformer's approximation of encoder self-attention (Xiong et al., 2021, equation 13).

    Neighbouring tokens are gathered into landmarks, whose queries and keys are the means Q̃ and K̃:

        out = softmax(Q K̃ᵀ / √d) softmax(Q̃ K̃ᵀ / √d)⁺ softmax(Q̃ Kᵀ / √d) V + conv(V)

    with a pseudo-inverse in 6 steps, and a convolution over 33 tokens for each head, whose kernels are the only
    parameters beyond the four linear layers. A `value_convolution`, as other kinds have it, takes its place. It is
    computed in float32 or better, as the pseudo-inverse needs it.

    A sentence depends on its batch: the pseudo-inverse starts from a number that is taken over the whole batch, which
    changes little, and the landmarks are cut by the longest sentence, so that those of a shorter one are means of more
    tokens than they would be by itself. Batch sentences of like lengths.
    """

    name = "nystromformer"

    def __init__(self, *args: Any, landmarks: int, **options: Any) -> None:
        super().__init__(*args, **options)
        with package("nystrom-attention"):
            from nystrom_attention import NystromAttention
        sizes = {"dim_head": self.head_dim, "heads": self.num_heads, "num_landmarks": landmarks}
        self.core = NystromAttention(self.embed_dim, residual=self.value_convolution is None, **sizes)
        self.core.to_qkv = self.core.to_out = nn.Identity()  # whose places our linear layers take
        self.landmarks = landmarks

    def mix(self, x: Tensor, mask: Tensor | None) -> Tensor:
        projected = torch.cat([self.q_proj(x), self.k_proj(x), self.v_proj(x)], 2).transpose(0, 1)
        tokens = None if mask is None else ~mask
        if tokens is None and len(x) % self.landmarks:  # the package fills up the last landmark, and masks what it adds
            tokens = torch.ones(projected.shape[:2], dtype=torch.bool, device=x.device)
        wide = at_least_float32(projected.dtype)
        weights = {name: weight.to(wide) for name, weight in self.core.named_parameters()}
        with full_precision(x):
            out = functional_call(self.core, weights, (projected.to(wide),), {"mask": tokens})
        return out.to(projected.dtype).transpose(0, 1)
