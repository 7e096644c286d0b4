"""Nyströmformer's attention, by the package nystrom-attention."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from linformer_fairseq.modules.ops.precision import at_least_float32
from linformer_fairseq.modules.peers.base import PeerAttention, full_precision
from linformer_fairseq.modules.peers.packages import package
from linformer_fairseq.modules.registry import AttentionOptions, LayerShapes, register_attention

LANDMARKS = 64


def nystrom_attention(dim: int, heads: int, landmarks: int, convolves: bool = True) -> nn.Module:
    """The package's self-attention over (B, n, C), with 6 steps of the pseudo-inverse.

    Args:
        dim: C, the model width.
        landmarks: into how many means the tokens of a sentence are gathered.
        convolves: whether it adds its residual convolution over the values (33 tokens).

    Raises:
        NotInstalledError: the package cannot be imported.
    """
    with package("nystrom-attention"):
        from nystrom_attention import NystromAttention
    return NystromAttention(dim, dim_head=dim // heads, heads=heads, num_landmarks=landmarks, residual=convolves)


@dataclass
class NystromformerOptions(AttentionOptions):
    """How many landmarks there are."""

    uses_k = False

    linformer_landmarks: int = field(
        default=LANDMARKS,
        metadata={
            "help": "nystromformer: landmarks, the means of neighbouring tokens that stand for all",
            "needs": "--linformer-projection nystromformer",
        },
    )

    def validate(self) -> None:
        super().validate()
        _check_landmarks(self.linformer_landmarks)

    def arguments(self, layers: LayerShapes) -> list[dict[str, Any]]:
        own = {"max_positions": layers.max_positions, "landmarks": self.linformer_landmarks}
        return [own] * len(layers.projected_dims)


@register_attention(
    "nystromformer",
    NystromformerOptions,
    "in the encoder alone, of the package nystrom-attention",
    defaults={"linformer_attention": "encoder"},
    encoder_only=True,
)
class NystromformerAttention(PeerAttention):
    r"""Nyströmformer's approximation of encoder self-attention (Xiong et al., 2021, equation 13), as the package
    nystrom-attention computes it.

    Neighbouring tokens are gathered into landmarks, whose queries and keys are the means Q̃ and K̃:

        out = softmax(Q K̃ᵀ / √d) softmax(Q̃ K̃ᵀ / √d)⁺ softmax(Q̃ Kᵀ / √d) V + conv(V)

    with a pseudo-inverse in 6 steps, and a convolution over 33 tokens for each head, whose kernels are the only
    parameters beyond the four linear layers. A `value_convolution`, as other kinds have it, takes its place, so that a
    model that was trained with one keeps it. It is computed in float32 or better, as the pseudo-inverse needs it.

    A sentence depends on its batch in two ways. The pseudo-inverse starts from a number that is taken over the whole
    batch, which changes little. Where sentences differ in length, the landmarks are cut by the longest: those of a
    shorter one are means of more tokens than they would be by itself, and the empty ones among them take part in the
    pseudo-inverse. Padding itself does not: the package gets its mask. Batch sentences of like lengths.

    Args:
        args, options: as `PeerAttention` takes them.
        landmarks: their number.

    Raises:
        NotInstalledError: the package cannot be imported.
        ValueError: as `PeerAttention`, and for fewer than one landmark.
    """

    name = "nystromformer"

    def __init__(self, embed_dim: int, num_heads: int, *args: Any, landmarks: int = LANDMARKS, **options: Any) -> None:
        _check_landmarks(landmarks)
        super().__init__(embed_dim, num_heads, *args, **options)
        self.landmarks = landmarks
        self.core = nystrom_attention(embed_dim, num_heads, landmarks, convolves=self.value_convolution is None)
        self.core.to_qkv = self.core.to_out = nn.Identity()  # whose places our linear layers take

    def extra_repr(self) -> str:
        return f"N={self.max_positions}, landmarks={self.landmarks}"

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


def _check_landmarks(landmarks: int) -> None:
    if landmarks < 1:
        raise ValueError(f"--linformer-landmarks must be at least 1, not {landmarks}")
