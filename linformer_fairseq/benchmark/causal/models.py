"""The whole models that decode against each other, of the same size and with random weights."""

from argparse import Namespace

from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import linformer_fairseq  # noqa: F401  registers the architectures

from .settings import CausalSettings

TRANSFORMER = "fairseq's Transformer"
LINFORMERS = {
    "Linformer (encoder, cross, decoder)": "encoder,cross,decoder",
    "Linformer (decoder)": "decoder",
}
"""The contenders, and which of their attentions are projected."""
SOURCE_POSITIONS = 1024


def dictionary(words: int) -> Dictionary:
    """That many words, besides fairseq's own symbols."""
    made = Dictionary()
    for word in range(words):
        made.add_symbol(f"w{word}")
    return made


def build_models(settings: CausalSettings, target_positions: int) -> dict[str, TransformerModelBase]:
    """All contenders, ready for inference as fairseq-generate makes them."""
    words = dictionary(settings.words)
    task = TranslationTask(TranslationConfig(), words, words)
    models = {TRANSFORMER: _build("transformer", settings, task, target_positions)}
    for name, places in LINFORMERS.items():
        flags = {"linformer_k": str(settings.k), "linformer_attention": places}
        models[name] = _build("linformer_transformer", settings, task, target_positions, **flags)
    for model in models.values():
        model.make_generation_fast_(need_attn=False)
    return models


def _build(
    arch: str, settings: CausalSettings, task: TranslationTask, target_positions: int, **flags: str
) -> TransformerModelBase:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in {
            "embed_dim": settings.dim,
            "ffn_embed_dim": settings.ffn_dim,
            "attention_heads": settings.heads,
            "layers": settings.layers,
        }.items()
    }
    args = Namespace(
        arch=arch,
        share_all_embeddings=True,
        max_source_positions=max(SOURCE_POSITIONS, settings.source_length, settings.k),
        max_target_positions=target_positions,
        **sides,
        **flags,
    )
    ARCH_CONFIG_REGISTRY[arch](args)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)
