"""The whole models whose decoding is compared, of the same size and with random weights."""

from fairseq.models.transformer import TransformerModelBase

from ..models import TRANSFORMER, ModelSizes, build
from .settings import CausalSettings

LINFORMERS = {
    "Linformer (encoder, cross, decoder)": "encoder,cross,decoder",
    "Linformer (decoder)": "decoder",
}
"""The contenders besides fairseq's Transformer, and which of their attentions are projected."""
SOURCE_POSITIONS = 1024


def build_models(settings: CausalSettings, target_positions: int) -> dict[str, TransformerModelBase]:
    """Returns all contenders, ready for inference as fairseq-generate makes them."""
    sizes = ModelSizes(settings.dim, settings.heads, settings.layers, settings.ffn_dim, settings.words)
    task = sizes.task()
    positions = {
        "max_source_positions": max(SOURCE_POSITIONS, settings.source_length, settings.k),
        "max_target_positions": target_positions,
    }
    models = {TRANSFORMER: build("transformer", sizes, task, **positions)}
    for name, places in LINFORMERS.items():
        flags = {
            "linformer_k": str(settings.k),
            "linformer_attention": places,
            "linformer_projection": "linear",
            "linformer_window": 0,
        }
        models[name] = build("linformer_transformer", sizes, task, **positions, **flags)
    for model in models.values():
        model.make_generation_fast_(need_attn=False)
    return models
