"""The attention modules that are compared: full attention, ours, and the peers; and ours elsewhere in a model."""

from functools import partial

import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from linformer_fairseq.modules import (
    CausalLinformerAttention,
    CausalTwoLevelAttention,
    LinearProjection,
    LinformerMultiheadAttention,
    ProjectedAttention,
    TwoLevelAttention,
)

from .peers import PEERS, Peer, SelfAttention, Sizes
from .settings import CAUSAL, CROSS, EQUAL, MODULES

EAGER = "full, n x n softmax (fairseq, need_weights=True)"
FAIRSEQ = "full (fairseq, need_weights=False)"
FUSED = "full, fused (torch)"
OURS = "Linformer (linformer_fairseq)"
TWO_LEVELS = "two levels (linformer_fairseq)"


class FusedAttention(nn.Module):
    """Four linear layers around `torch.nn.functional.scaled_dot_product_attention`, batch first as suits it best."""

    def __init__(self, dim: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.num_heads = heads
        self.causal = causal
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(dim, dim) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Maps x (B, n, C) to the output of the same shape."""
        q, k, v = (
            linear(x).unflatten(2, (self.num_heads, -1)).transpose(1, 2)
            for linear in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.out_proj(F.scaled_dot_product_attention(q, k, v, is_causal=self.causal).transpose(1, 2).flatten(2))


def _fairseq(sizes: Sizes, need_weights: bool = False) -> nn.Module:
    return SelfAttention(MultiheadAttention(sizes.dim, sizes.heads, self_attention=True), need_weights)


def _linformer(attention: type[ProjectedAttention], sizes: Sizes, **place: bool) -> nn.Module:
    projections = (LinearProjection(sizes.k, sizes.length) for _ in range(2))
    arguments = dict(zip(("key_projection", "value_projection"), projections, strict=True))
    return SelfAttention(attention(sizes.dim, sizes.heads, **arguments, **place))


def _two_levels(attention: type[ProjectedAttention], sizes: Sizes, **place: bool) -> nn.Module:
    arguments = {"projected_dim": sizes.k, "max_positions": sizes.length}
    return SelfAttention(attention(sizes.dim, sizes.heads, **arguments, **place))


def _full(sizes: Sizes, causal: bool = False) -> nn.Module:
    return FusedAttention(sizes.dim, sizes.heads, causal)


def _own(two_levels: type[ProjectedAttention], linformer: type[ProjectedAttention], **place: bool) -> tuple[Peer, Peer]:
    """Both of ours as a place of a model has them, with the architectures' defaults for everything but k."""
    return (
        Peer(TWO_LEVELS, "linformer_fairseq", True, partial(_two_levels, two_levels, **place), time_first=True),
        Peer(OURS, "linformer_fairseq", True, partial(_linformer, linformer, **place), time_first=True),
    )


FULL = (
    Peer(EAGER, "fairseq", False, partial(_fairseq, need_weights=True), time_first=True),
    Peer(FAIRSEQ, "fairseq", False, _fairseq, time_first=True),
    Peer(FUSED, "torch", False, _full),
)
OWN = _own(TwoLevelAttention, LinformerMultiheadAttention, self_attention=True)
CONTENDERS = (*FULL, *OWN, *PEERS)
"""Those of the encoder's self-attention."""
CROSS_CONTENDERS = (
    Peer(FUSED, "torch", False, _full),
    *_own(TwoLevelAttention, LinformerMultiheadAttention, encoder_decoder_attention=True),
)
"""Those of cross-attention, whose queries are as many as its tokens; they are given the same numbers for both."""
CAUSAL_CONTENDERS = (
    Peer(FUSED, "torch", False, partial(_full, causal=True)),
    *_own(CausalTwoLevelAttention, CausalLinformerAttention, self_attention=True),
)
"""Those of the decoder's self-attention."""
BY_PART = {MODULES: CONTENDERS, EQUAL: CONTENDERS, CROSS: CROSS_CONTENDERS, CAUSAL: CAUSAL_CONTENDERS}
"""The contenders of every part that measures modules."""
WITH_K = tuple(contender.name for contender in CONTENDERS if contender.takes_k)
"""Contenders that are built once for each k."""
