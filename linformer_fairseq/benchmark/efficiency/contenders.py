"""The attention modules that are compared: full attention, ours, and the peers."""

from functools import partial

import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from linformer_fairseq.modules import LinearProjection, LinformerMultiheadAttention, TwoLevelAttention

from .peers import PEERS, Peer, SelfAttention, Sizes

EAGER = "full, n x n softmax (fairseq, need_weights=True)"
FAIRSEQ = "full (fairseq, need_weights=False)"
FUSED = "full, fused (torch)"
OURS = "Linformer (linformer_fairseq)"
TWO_LEVELS = "two levels (linformer_fairseq)"


class FusedAttention(nn.Module):
    """Four linear layers around `torch.nn.functional.scaled_dot_product_attention`, batch first as suits it best."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.num_heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Maps x (B, n, C) to the output of the same shape."""
        q, k, v = (
            linear(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def _fairseq(sizes: Sizes, need_weights: bool = False) -> nn.Module:
    return SelfAttention(MultiheadAttention(sizes.dim, sizes.heads, self_attention=True), need_weights)


def _ours(sizes: Sizes) -> nn.Module:
    return SelfAttention(
        LinformerMultiheadAttention(
            sizes.dim,
            sizes.heads,
            self_attention=True,
            key_projection=LinearProjection(sizes.k, sizes.length),
            value_projection=LinearProjection(sizes.k, sizes.length),
        )
    )


def _two_levels(sizes: Sizes) -> nn.Module:
    return SelfAttention(
        TwoLevelAttention(
            sizes.dim, sizes.heads, self_attention=True, projected_dim=sizes.k, max_positions=sizes.length
        )
    )


FULL = (
    Peer(EAGER, "fairseq", False, partial(_fairseq, need_weights=True), time_first=True),
    Peer(FAIRSEQ, "fairseq", False, _fairseq, time_first=True),
    Peer(FUSED, "torch", False, lambda sizes: FusedAttention(sizes.dim, sizes.heads)),
)
OWN = (
    Peer(OURS, "linformer_fairseq", True, _ours, time_first=True),
    Peer(TWO_LEVELS, "linformer_fairseq", True, _two_levels, time_first=True),
)
CONTENDERS = (*FULL, *OWN, *PEERS)
WITH_K = tuple(contender.name for contender in CONTENDERS if contender.takes_k)
"""Contenders that are built once for each k."""
