"""Tasks; importing them registers them with fairseq."""

from linformer_fairseq.tasks.document_translation import DocumentTranslationTask
from linformer_fairseq.tasks.hub import DocumentHubInterface

__all__ = ["DocumentHubInterface", "DocumentTranslationTask"]
