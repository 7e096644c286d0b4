"""Whole translation models of given sizes, with random weights."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import linformer_fairseq  # noqa: F401  registers the architectures

TRANSFORMER = "fairseq's Transformer"


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of the encoder, and of the decoder; the defaults are those of `transformer_wmt_en_de`."""

    dim: int = 512
    heads: int = 8
    layers: int = 6
    ffn_dim: int = 2048
    words: int = 8000
    """Words of the vocabulary besides fairseq's own symbols; source and target share it, and all embeddings."""

    def task(self) -> TranslationTask:
        words = dictionary(self.words)
        return TranslationTask(TranslationConfig(), words, words)

    def arguments(self) -> dict[str, int]:
        """Returns the sizes as fairseq's options."""
        options = {
            "embed_dim": self.dim,
            "ffn_embed_dim": self.ffn_dim,
            "attention_heads": self.heads,
            "layers": self.layers,
        }
        return {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in options.items()}


def dictionary(words: int) -> Dictionary:
    """Returns a vocabulary of so many words, besides fairseq's own symbols."""
    made = Dictionary()
    for word in range(words):
        made.add_symbol(f"w{word}")
    return made


def build(arch: str, sizes: ModelSizes, task: TranslationTask, **arguments: Any) -> TransformerModelBase:
    """Returns a model of fairseq's registry.

    Args:
        task: of the same sizes.
        arguments: further options, under fairseq's names.
    """
    args = Namespace(arch=arch, share_all_embeddings=True, **sizes.arguments(), **arguments)
    ARCH_CONFIG_REGISTRY[arch](args)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)
