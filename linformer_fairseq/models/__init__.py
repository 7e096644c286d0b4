"""Models and architectures; importing them registers them with fairseq."""

from linformer_fairseq.models.linformer_roberta import LinformerRobertaModel
from linformer_fairseq.models.linformer_transformer import LinformerTransformerModel
from linformer_fairseq.models.linformer_transformer_lm import LinformerTransformerLanguageModel

__all__ = ["LinformerRobertaModel", "LinformerTransformerLanguageModel", "LinformerTransformerModel"]
