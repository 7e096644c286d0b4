"""The attention modules that stand beside each other: full attention, ours, and the peers."""

import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from linformer_fairseq.modules import LinearProjection, LinformerMultiheadAttention, TwoLevelPool

from .peers import PEERS, Peer, check_slots
from .sizes import Sizes

EAGER = "full, n x n softmax (fairseq, need_weights=True)"
FAIRSEQ = "full (fairseq, need_weights=False)"
FUSED = "full, fused (torch)"
OURS = "Linformer (linformer_fairseq)"
"""The paper's, with learned E and F."""
TWO_LEVELS = "Linformer, two levels (linformer_fairseq)"


class SelfAttention(nn.Module):
    """An attention that is called as fairseq calls its own, with an input that is query, key and value."""

    def __init__(self, attention: nn.Module, need_weights: bool = False) -> None:
        super().__init__()
        self.attention = attention
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        """(n, B, C)."""
        return self.attention(x, x, x, need_weights=self.need_weights)[0]


class FusedAttention(nn.Module):
    """Four linear layers around `torch.nn.functional.scaled_dot_product_attention`, batch first as it likes it best."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """(B, n, C)."""
        q, k, v = (
            linear(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.out_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def _eager(sizes: Sizes) -> nn.Module:
    return SelfAttention(MultiheadAttention(sizes.dim, sizes.heads, self_attention=True), need_weights=True)


def _fairseq(sizes: Sizes) -> nn.Module:
    return SelfAttention(MultiheadAttention(sizes.dim, sizes.heads, self_attention=True))


def _fused(sizes: Sizes) -> nn.Module:
    return FusedAttention(sizes.dim, sizes.heads)


def _ours(sizes: Sizes) -> nn.Module:
    check_slots(sizes)
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
    check_slots(sizes)
    pool = TwoLevelPool(sizes.k, sizes.length)
    return SelfAttention(LinformerMultiheadAttention(sizes.dim, sizes.heads, self_attention=True, key_projection=pool))


FULL = (
    Peer(EAGER, "fairseq", False, _eager, time_first=True),
    Peer(FAIRSEQ, "fairseq", False, _fairseq, time_first=True),
    Peer(FUSED, "torch", False, _fused),
)
OWN = (
    Peer(OURS, "linformer_fairseq", True, _ours, time_first=True),
    Peer(TWO_LEVELS, "linformer_fairseq", True, _two_levels, time_first=True),
)
CONTENDERS = (*FULL, *OWN, *PEERS)
LINFORMERS = tuple(contender.name for contender in CONTENDERS if contender.takes_k)
"""There is one of these for every k."""
PEER_LINFORMERS = tuple(peer.name for peer in PEERS if peer.takes_k)
"""Those of other packages."""
