"""Linformer attention for fairseq's translation Transformers: `--user-dir linformer_fairseq`."""

from linformer_fairseq.checkpoints import admit_checkpoint_types
from linformer_fairseq.models import LinformerTransformerModel
from linformer_fairseq.modules import LinformerMultiheadAttention

__all__ = ["LinformerMultiheadAttention", "LinformerTransformerModel"]

admit_checkpoint_types()
