"""The whole models whose decoding is compared, of the same size and with random weights."""

from fairseq.models.transformer import TransformerModelBase

from linformer_fairseq.models.config import ALL_PLACES

from ..models import TRANSFORMER, TWO_LEVEL_FLAGS, build, linformer_flags
from .settings import CausalSettings

TWO_LEVELS = f"two levels ({ALL_PLACES.replace(',', ', ')})"
LINFORMERS = {
    "Linformer (encoder, cross, decoder)": ALL_PLACES,
    "Linformer (decoder)": "decoder",
}
"""The Linformers that are compared, and which of their attentions are projected."""
OURS = (TWO_LEVELS, *LINFORMERS)
"""The contenders besides fairseq's Transformer."""
SOURCE_POSITIONS = 1024


def build_models(settings: CausalSettings, target_positions: int) -> dict[str, TransformerModelBase]:
    """Returns all contenders, ready for inference as fairseq-generate makes them."""
    task = settings.model.task()
    flags = {TWO_LEVELS: {**TWO_LEVEL_FLAGS, **linformer_flags(settings.k)}}
    flags |= {name: linformer_flags(settings.k, attention=attention) for name, attention in LINFORMERS.items()}
    longest_source = max(SOURCE_POSITIONS, settings.source_length, settings.k)
    models = {
        name: build(own, settings.model, task, target_positions, longest_source)
        for name, own in {TRANSFORMER: {}, **flags}.items()
    }
    for model in models.values():
        model.make_generation_fast_(need_attn=False)
    return models
