"""Models and architectures; importing them registers them with fairseq."""

from linformer_fairseq.models.language_model import LinformerTransformerLanguageModel
from linformer_fairseq.models.masked_language_model import LinformerRobertaModel
from linformer_fairseq.models.register import register_all
from linformer_fairseq.models.translation import LinformerTransformerModel

__all__ = ["LinformerRobertaModel", "LinformerTransformerLanguageModel", "LinformerTransformerModel"]

register_all()
