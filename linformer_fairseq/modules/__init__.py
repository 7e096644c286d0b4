"""Attention and projections: tensors in, tensors out."""

from linformer_fairseq.modules.linformer_multihead_attention import LinformerMultiheadAttention
from linformer_fairseq.modules.projection import (
    KINDS,
    ConvProjection,
    LinearProjection,
    MaxPool,
    MeanPool,
    PooledLinear,
    Projection,
    TwoLevelPool,
)

__all__ = [
    "KINDS",
    "ConvProjection",
    "LinearProjection",
    "LinformerMultiheadAttention",
    "MaxPool",
    "MeanPool",
    "PooledLinear",
    "Projection",
    "TwoLevelPool",
]
