"""The `linformer_transformer` model and its architectures."""

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
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
from torch import Tensor, nn

from linformer_fairseq.models.config import LayerProjections, LinformerConfig
from linformer_fairseq.models.errors import one_sentence
from linformer_fairseq.models.layers import LinformerDecoderLayer, LinformerEncoderLayer, wrap_layer
from linformer_fairseq.models.padding import restore_padding, right_padding_order

logger = logging.getLogger(__name__)


class LinformerTransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder with projected self-attention; whatever the task's padding, it computes on right-padded
    sources and returns its outputs so. `src_tokens` of the output keeps the tokens as they came.

    Args:
        projections: E and F of every layer, or None to leave self-attention whole.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        projections: list[LayerProjections] | None,
    ) -> None:
        self.layer_projections = iter(projections or [None] * cfg.encoder.layers)
        super().__init__(cfg, dictionary, embed_tokens)
        del self.layer_projections

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        return wrap_layer(LinformerEncoderLayer(cfg, next(self.layer_projections), self.return_fc), cfg)

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        order = right_padding_order(src_tokens, self.padding_idx)
        if token_embeddings is not None:
            token_embeddings = token_embeddings.gather(1, order[:, :, None].expand_as(token_embeddings))
        out = super().forward(src_tokens.gather(1, order), src_lengths, return_all_hiddens, token_embeddings)
        out["src_tokens"] = [src_tokens]
        return out


class LinformerTransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder with projected cross-attention; its attention weights follow the task's source layout.

    Args:
        projections: E and F of every layer, or None to leave cross-attention whole.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        projections: list[LayerProjections] | None,
        no_encoder_attn: bool = False,
    ) -> None:
        self.layer_projections = iter(projections or [None] * cfg.decoder.layers)
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn)
        del self.layer_projections

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> nn.Module:
        return wrap_layer(LinformerDecoderLayer(cfg, next(self.layer_projections), no_encoder_attn), cfg)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        *args: Any,
        **kwargs: Any,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        x, extra = super().extract_features(prev_output_tokens, encoder_out, *args, **kwargs)
        weights = extra["attn"][0]
        if weights is not None and encoder_out is not None and encoder_out["src_tokens"]:
            extra["attn"] = [restore_padding(weights, encoder_out["src_tokens"][0], self.padding_idx)]
        return x, extra


@register_model("linformer_transformer")
class LinformerTransformerModel(TransformerModel):
    """fairseq's `transformer` with Linformer attention (Wang et al., 2020) in the encoder's self-attention and the
    decoder's cross-attention. All flags of `transformer` keep their meaning; `--linformer-...` choose the
    projections.
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
        with one_sentence():
            if utils.eval_bool(str(getattr(task.cfg, "left_pad_target", False))):
                raise ValueError("--left-pad-target is not supported: leave it out, targets are padded on the right")
        if isinstance(args, DictConfig):  # from fairseq-hydra-train
            args = Namespace(**OmegaConf.to_container(args, resolve=True))
        return super().build_model(args, task)

    @classmethod
    def build_encoder(
        cls, cfg: TransformerConfig, src_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> LinformerTransformerEncoder:
        with one_sentence():
            projections = _projections(cfg, "encoder", cfg.encoder.layers, cfg.encoder.attention_heads)
            return LinformerTransformerEncoder(cfg, src_dict, embed_tokens, projections)

    @classmethod
    def build_decoder(
        cls, cfg: TransformerConfig, tgt_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> LinformerTransformerDecoder:
        with one_sentence():
            projections = _projections(cfg, "cross", cfg.decoder.layers, cfg.decoder.attention_heads)
            return LinformerTransformerDecoder(cfg, tgt_dict, embed_tokens, projections, cfg.no_cross_attention)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Lets the projections start fresh where a plain `transformer` is loaded (`--finetune-from-model`), and
        refuses a checkpoint whose projections are not this model's."""
        super().upgrade_state_dict_named(state_dict, name)
        own = projection_weights(self.state_dict())
        found = projection_weights(state_dict)
        if own and not found:
            logger.info("the checkpoint has no Linformer projections: they start fresh")
            state_dict.update(own)
            return
        with one_sentence():
            for key in sorted(own.keys() ^ found.keys()):
                where = "has no" if key in own else "has a"
                raise ValueError(
                    f"the checkpoint {where} {key}, unlike this model: "
                    "give the --linformer-attention and --linformer-projection that it was trained with"
                )
            for key, weight in own.items():
                theirs, ours = tuple(found[key].shape), tuple(weight.shape)
                if theirs != ours:
                    raise ValueError(
                        f"the checkpoint's {key} has shape {theirs}, this model's {ours}: give the "
                        "--linformer-k, --linformer-sharing and --max-source-positions that it was trained with"
                    )


def projection_weights(state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
    """The entries of E and F in a model's state."""
    endings = ("key_projection.weight", "value_projection.weight")
    return {key: weight for key, weight in state_dict.items() if key.endswith(endings)}


def _projections(cfg: TransformerConfig, place: str, layers: int, heads: int) -> list[LayerProjections] | None:
    """E and F of every layer, or None where the attention of `place` stays whole."""
    config = LinformerConfig.from_namespace(cfg)
    return config.projections(place, layers, heads, cfg.max_source_positions) if place in config.places else None


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
