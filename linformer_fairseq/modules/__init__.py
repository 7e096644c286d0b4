"""Attention: tensors in, tensors out. Importing this registers every kind of it."""

from linformer_fairseq.modules.base import BaseAttention
from linformer_fairseq.modules.causal_linformer import CausalLinformerAttention
from linformer_fairseq.modules.full import CausalFullAttention, FullAttention
from linformer_fairseq.modules.key_cluster_attention import KeyClusterAttention
from linformer_fairseq.modules.linformer_attention import LinformerMultiheadAttention
from linformer_fairseq.modules.projections import (
    ConvProjection,
    LinearProjection,
    MaxPool,
    MeanPool,
    Projection,
)
from linformer_fairseq.modules.registry import CAUSAL_KINDS, CROSS_KINDS, KINDS
from linformer_fairseq.modules.two_level.attention import TwoLevelAttention
from linformer_fairseq.modules.two_level.causal import CausalTwoLevelAttention
from linformer_fairseq.modules.window_attention import CausalWindowAttention, WindowAttention

__all__ = [
    "CAUSAL_KINDS",
    "CROSS_KINDS",
    "KINDS",
    "BaseAttention",
    "CausalFullAttention",
    "CausalLinformerAttention",
    "CausalTwoLevelAttention",
    "CausalWindowAttention",
    "ConvProjection",
    "FullAttention",
    "KeyClusterAttention",
    "LinearProjection",
    "LinformerMultiheadAttention",
    "MaxPool",
    "MeanPool",
    "Projection",
    "TwoLevelAttention",
    "WindowAttention",
]
