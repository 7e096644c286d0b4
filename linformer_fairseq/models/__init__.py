"""Thin fairseq models that say which attention goes where."""

from linformer_fairseq.models.linformer_transformer import LinformerTransformerModel

__all__ = ["LinformerTransformerModel"]
