"""Linformer attention for fairseq's Transformers: `--user-dir linformer_fairseq`."""

import logging

# one of fairseq's tasks asks for tensorboardX whenever fairseq is imported, so this comes before the imports
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.WARNING)

from linformer_fairseq.checkpoints import admit_checkpoint_types
from linformer_fairseq.fused_attention import prefer_flash_attention
from linformer_fairseq.models import (
    LinformerRobertaModel,
    LinformerTransformerLanguageModel,
    LinformerTransformerModel,
)
from linformer_fairseq.modules import (
    CausalLinformerAttention,
    KeyClusterAttention,
    LinformerMultiheadAttention,
    TwoLevelAttention,
)
from linformer_fairseq.numpy_compat import restore_numpy_compat
from linformer_fairseq.optim import FusedAdam
from linformer_fairseq.tasks import DocumentHubInterface, DocumentTranslationTask

__all__ = [
    "CausalLinformerAttention",
    "DocumentHubInterface",
    "DocumentTranslationTask",
    "FusedAdam",
    "KeyClusterAttention",
    "LinformerMultiheadAttention",
    "LinformerRobertaModel",
    "LinformerTransformerLanguageModel",
    "LinformerTransformerModel",
    "TwoLevelAttention",
]

admit_checkpoint_types()
prefer_flash_attention()
restore_numpy_compat()
