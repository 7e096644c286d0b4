"""The `linformer_transformer_lm` language model and its architectures."""

from argparse import Namespace
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
    transformer_lm_baevski_wiki103,
    transformer_lm_gpt,
    transformer_lm_gpt2_tiny,
)
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig

from linformer_fairseq.models.config import LanguageModelAttentionConfig
from linformer_fairseq.models.decoder import LinformerTransformerDecoder
from linformer_fairseq.models.errors import one_sentence
from linformer_fairseq.models.loading import ChecksProjections


@dataclass
class LinformerLanguageModelConfig(LanguageModelAttentionConfig, TransformerLanguageModelConfig):
    """The flags of fairseq's `transformer_lm`, and those of causal attention."""


@register_model("linformer_transformer_lm", dataclass=LinformerLanguageModelConfig)
class LinformerTransformerLanguageModel(ChecksProjections, TransformerLanguageModel):
    """fairseq's `transformer_lm` with causal Linformer self-attention.

    N is `--max-target-positions`, or `--tokens-per-sample` without it. Padding is on the right, as in fairseq's tasks.
    """

    layer_flags = "number of layers"
    shape_flags = (
        "--linformer-k, --linformer-window, --linformer-sharing, --max-target-positions and --tokens-per-sample"
    )

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def build_model(cls, args: Namespace | DictConfig, task: FairseqTask) -> "LinformerTransformerLanguageModel":
        with one_sentence():
            config = LanguageModelAttentionConfig.from_namespace(args)
            # fairseq builds embeddings and decoder in one; its embeddings are kept, its decoder gives way to ours, at
            # the cost of twice the memory while the model is built
            embed_tokens = super().build_model(args, task).decoder.embed_tokens
            cfg = TransformerConfig.from_namespace(args)
            layers, heads = cfg.decoder.layers, cfg.decoder.attention_heads
            kept = cfg.decoder.layers_to_keep
            scalar_noise = cfg.quant_noise.scalar > 0
            attention = config.attention("decoder", layers, heads, cfg.max_target_positions, kept, scalar_noise)
            decoder = LinformerTransformerDecoder(
                cfg,
                task.target_dictionary,
                embed_tokens,
                cross=None,
                self_attention=attention,
                no_encoder_attn=True,
            )
            return cls(decoder)


LM_ARCHITECTURES: dict[str, Callable[[Namespace], None]] = {
    "linformer_transformer_lm_wiki103": transformer_lm_baevski_wiki103,
    "linformer_transformer_lm_gpt": transformer_lm_gpt,
    "linformer_transformer_lm_gpt2_tiny": transformer_lm_gpt2_tiny,
}
"""Every architecture but `linformer_transformer_lm` itself by its fairseq counterpart."""

for _name, _architecture in LM_ARCHITECTURES.items():
    register_model_architecture("linformer_transformer_lm", _name)(_architecture)
