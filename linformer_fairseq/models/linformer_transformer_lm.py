"""The `linformer_transformer_lm` model, with its architectures `linformer_transformer_lm*` and
`two_level_transformer_lm*`."""

from argparse import Namespace
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

from linformer_fairseq.models.architectures import Architecture, prefixed
from linformer_fairseq.models.config import LanguageModelAttentionConfig
from linformer_fairseq.models.decoder import LinformerTransformerDecoder
from linformer_fairseq.models.errors import one_sentence
from linformer_fairseq.models.exact_length import TellsExactLength
from linformer_fairseq.models.loading import ChecksProjections

_Attention = LanguageModelAttentionConfig.with_kinds()


@dataclass
class LinformerLanguageModelConfig(_Attention, TransformerLanguageModelConfig):  # type: ignore[misc, valid-type]
    """The flags of fairseq's `transformer_lm`, and those of causal attention.

    fairseq takes them when the model is registered, so that kinds that other packages register later are not among
    them.
    """


@register_model("linformer_transformer_lm", dataclass=LinformerLanguageModelConfig)
class LinformerTransformerLanguageModel(TellsExactLength, ChecksProjections, TransformerLanguageModel):
    """fairseq's `transformer_lm` with projected causal self-attention.

    The architectures `linformer_transformer_lm*` have Linformer's with a state of constant size, and
    `two_level_transformer_lm*` that of two levels, unless `--linformer-projection` says otherwise. N is
    `--max-target-positions`, or `--tokens-per-sample` without it. Padding is on the right, as in fairseq's tasks.
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
            kept = cfg.decoder.layers_to_keep
            scalar_noise = cfg.quant_noise.scalar > 0
            attention = config.attention("decoder", cfg.decoder.layers, cfg.max_target_positions, kept, scalar_noise)
            decoder = LinformerTransformerDecoder(
                cfg,
                task.target_dictionary,
                embed_tokens,
                cross=None,
                self_attention=attention,
                no_encoder_attn=True,
            )
            model = cls(decoder)
            model.exact_below = config.exact_below
            return model


def _with_projection(kind: str, architecture: Architecture) -> Architecture:
    """Adds a kind of attention to the defaults of fairseq's own."""

    def fill_in(args: Namespace) -> None:
        args.linformer_projection = getattr(args, "linformer_projection", kind)
        architecture(args)

    return fill_in


def _no_defaults(args: Namespace) -> None:
    """The architecture of the model's own defaults."""


FAIRSEQ_LM_ARCHITECTURES: dict[str, Architecture] = {
    "transformer_lm": _no_defaults,
    "transformer_lm_wiki103": transformer_lm_baevski_wiki103,
    "transformer_lm_gpt": transformer_lm_gpt,
    "transformer_lm_gpt2_tiny": transformer_lm_gpt2_tiny,
}
"""fairseq's function for each of its architectures that have counterparts here."""
LM_ARCHITECTURES = prefixed(FAIRSEQ_LM_ARCHITECTURES)
"""The kind of attention of every architecture."""

for _arch, _kind in LM_ARCHITECTURES.items():
    if _arch != "linformer_transformer_lm":  # which fairseq registers with the model
        _base = FAIRSEQ_LM_ARCHITECTURES[_arch[_arch.index("transformer") :]]
        register_model_architecture("linformer_transformer_lm", _arch)(_with_projection(_kind, _base))
