"""The `linformer_transformer` model and its architectures."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerModel,
    base_architecture,
    tiny_architecture,
    transformer_iwslt_de_en,
    transformer_vaswani_wmt_en_de_big,
    transformer_wmt_en_de,
    transformer_wmt_en_de_big,
)
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig, OmegaConf
from torch import nn

from linformer_fairseq.models.config import LayerProjections, LinformerConfig
from linformer_fairseq.models.decoder import LinformerTransformerDecoder
from linformer_fairseq.models.encoder import LinformerTransformerEncoder
from linformer_fairseq.models.errors import one_sentence
from linformer_fairseq.models.loading import ChecksProjections
from linformer_fairseq.modules import LinformerMultiheadAttention


@register_model("linformer_transformer")
class LinformerTransformerModel(ChecksProjections, TransformerModel):
    """fairseq's `transformer` with Linformer attention (Wang et al., 2020) in any of the encoder's self-attention, the
    decoder's cross-attention and its causal self-attention. All flags of `transformer` keep their meaning;
    `--linformer-...` choose the projections.
    """

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        gen_parser_from_dataclass(parser, LinformerConfig(), delete_default=True)

    @classmethod
    def build_model(cls, args: Namespace | DictConfig, task: FairseqTask) -> "LinformerTransformerModel":
        settings = getattr(task, "cfg", None) or getattr(task, "args", None)
        with one_sentence():
            if utils.eval_bool(str(getattr(settings, "left_pad_target", False))):
                raise ValueError("--left-pad-target is not supported: leave it out, targets are padded on the right")
        if isinstance(args, DictConfig):  # from fairseq-hydra-train
            args = Namespace(**OmegaConf.to_container(args, resolve=True))
        model = super().build_model(args, task)
        model.decoder.trains_alignments = bool(getattr(settings, "load_alignments", False))
        return model

    def set_beam_size(self, beam_size: int) -> None:
        """What fairseq's search calls: projected cross-attention then keeps its keys once a sentence, not once a
        hypothesis."""
        for module in self.modules():
            if isinstance(module, LinformerMultiheadAttention):
                module.set_beam_size(beam_size)

    @classmethod
    def build_encoder(
        cls, cfg: TransformerConfig, src_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> LinformerTransformerEncoder:
        with one_sentence():
            return LinformerTransformerEncoder(cfg, src_dict, embed_tokens, _projections(cfg, "encoder"))

    @classmethod
    def build_decoder(
        cls, cfg: TransformerConfig, tgt_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> LinformerTransformerDecoder:
        with one_sentence():
            cross, own = _projections(cfg, "cross"), _projections(cfg, "decoder")
            return LinformerTransformerDecoder(cfg, tgt_dict, embed_tokens, cross, own, cfg.no_cross_attention)


def _projections(cfg: TransformerConfig, place: str) -> list[LayerProjections] | None:
    """E and F of every layer, or None where the attention of `place` stays whole."""
    config = LinformerConfig.from_namespace(cfg)
    if place not in config.places:
        return None
    if cfg.quant_noise.scalar > 0 and config.linformer_sharing == "none":
        raise ValueError("--quant-noise-scalar needs another --linformer-sharing than none")
    if cfg.quant_noise.scalar > 0 and place == "decoder":
        raise ValueError("--quant-noise-scalar does not go with decoder in --linformer-attention; leave one out")
    side = cfg.encoder if place == "encoder" else cfg.decoder
    longest = cfg.max_target_positions if place == "decoder" else cfg.max_source_positions
    return config.projections(place, side.layers, side.attention_heads, longest, side.layers_to_keep)


def _with_linformer_defaults(
    architecture: Callable[[Namespace], None],
) -> Callable[[Namespace | DictConfig], None]:
    """Adds the defaults of the `--linformer-...` flags, so that a checkpoint records them, to fairseq's own."""

    def fill_in(args: Namespace | DictConfig) -> None:
        # fairseq's function asks for attributes that may be missing, which old OmegaConf answers with None
        flat = Namespace(**OmegaConf.to_container(args)) if isinstance(args, DictConfig) else args
        for name, value in vars(LinformerConfig()).items():
            if not name.startswith("_"):
                setattr(flat, name, getattr(flat, name, value))
        architecture(flat)
        if flat is not args:
            args.update(vars(flat))

    return fill_in


ARCHITECTURES: dict[str, Callable[[Namespace], None]] = {
    "linformer_transformer": base_architecture,
    "linformer_transformer_tiny": tiny_architecture,
    "linformer_transformer_iwslt_de_en": transformer_iwslt_de_en,
    "linformer_transformer_wmt_en_de": transformer_wmt_en_de,
    "linformer_transformer_vaswani_wmt_en_de_big": transformer_vaswani_wmt_en_de_big,
    "linformer_transformer_wmt_en_de_big": transformer_wmt_en_de_big,
}
"""Every architecture by its fairseq counterpart."""

for _name, _architecture in ARCHITECTURES.items():
    register_model_architecture("linformer_transformer", _name)(_with_linformer_defaults(_architecture))
