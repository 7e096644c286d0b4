"""Whole translation models of given sizes, with random weights."""

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass

from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModelBase
from fairseq.tasks.translation import TranslationConfig, TranslationTask

import linformer_fairseq  # noqa: F401  registers the architectures
from linformer_fairseq.models.architectures import PRESETS
from linformer_fairseq.models.config import ALL_PLACES, default_flags

TRANSFORMER = "fairseq's Transformer"
TWO_LEVELS = "two levels"
FUSED = "Transformer, all attention fused"
"""With torch's fused attention everywhere; fairseq's own has an explicit softmax in cross-attention."""
BASELINE = "transformer_wmt_en_de"
"""fairseq's architecture whose counterparts are compared."""
Flags = dict[str, str | int]
"""Options of a model beside its sizes, under fairseq's names."""
TWO_LEVEL_FLAGS: Flags = {"linformer_projection": "two-level"}
"""All other options are those of the architecture."""
FUSED_FLAGS: Flags = {**TWO_LEVEL_FLAGS, "linformer_exact_below": 1_000_000}
"""Two levels that are full attention at any length."""


@dataclass(frozen=True)
class ModelSizes:
    """Sizes of the encoder, and of the decoder."""

    dim: int
    heads: int
    layers: int
    ffn_dim: int
    words: int
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


def linformer_flags(k: int, **differences: str) -> Flags:
    """Returns the options of a Linformer; `differences` are its `attention`, `sharing` or `projection`."""
    return {"linformer_k": str(k), **{f"linformer_{name}": value for name, value in differences.items()}}


def own_k(flags: Flags) -> int:
    """Returns the slots of a model with these options, at least one of them."""
    return int({**default_flags(flags.get("linformer_projection", "linear")), **flags}["linformer_k"])


def contenders(ks: Sequence[int], k_everywhere: int | None = None) -> dict[str, Flags]:
    """Returns fairseq's Transformer, two levels, a Linformer for each k, and one that projects the decoder's
    self-attention too; two levels have their architecture's own settings."""
    models: dict[str, Flags] = {TRANSFORMER: {}, TWO_LEVELS: TWO_LEVEL_FLAGS}
    models |= {f"Linformer, k = {k}": linformer_flags(k) for k in ks}
    if k_everywhere is not None:
        name = f"Linformer, k = {k_everywhere} ({ALL_PLACES.replace(',', ', ')})"
        models[name] = linformer_flags(k_everywhere, attention=ALL_PLACES)
    return models


def build(
    flags: Flags, sizes: ModelSizes, task: TranslationTask, positions: int, source_positions: int | None = None
) -> TransformerModelBase:
    """Returns a model with these flags, or fairseq's Transformer if there are none, in training mode.

    Args:
        task: of the same sizes.
        positions: the longest target, and the longest source if that is not given by `source_positions`.
    """
    prefixes = {kind: prefix for prefix, kind in PRESETS.items()}  # a kind without one is a variant of Linformer
    prefix = prefixes.get(flags.get("linformer_projection", ""), "linformer_") if flags else ""
    arch = prefix + BASELINE
    longest = {"max_source_positions": source_positions or positions, "max_target_positions": positions}
    args = Namespace(arch=arch, share_all_embeddings=True, **sizes.arguments(), **longest, **flags)
    ARCH_CONFIG_REGISTRY[arch](args)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task)
