"""Transformer layers whose attention may be of any registered kind."""

from typing import Any, TypeVar

from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerConfig
from fairseq.modules import FairseqDropout
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from linformer_fairseq.models.config import AttentionBuilder
from linformer_fairseq.modules import BaseAttention

Layer = TypeVar("Layer", bound=nn.Module)

FAST_PATH_PARAMETERS = tuple(
    f"{name}_{kind}" for name in ("in_proj", "out_proj", "fc1", "fc2") for kind in ("weight", "bias")
)
"""Copies of the layer's weights that fairseq 0.12.2 keeps for a fused kernel."""


class LinformerEncoderLayer(TransformerEncoderLayerBase):
    """Encoder layer whose self-attention `attention` builds, or fairseq's own where that is None.

    fairseq 0.12.2 computes a loaded layer with a fused kernel that knows full attention only. Here that path stays
    closed: it opens in fairseq's `_load_from_state_dict`, which is overridden. The copies of the weights that it
    would use are dropped, so that checkpoints are the same on every fairseq.
    """

    def __init__(self, cfg: TransformerConfig, attention: AttentionBuilder | None, return_fc: bool = False) -> None:
        self.attention = attention
        super().__init__(cfg, return_fc)
        del self.attention
        keep_dropout_names(self, "TransformerEncoderLayerBase")
        for name in FAST_PATH_PARAMETERS:
            if hasattr(self, name):
                delattr(self, name)

    def build_self_attention(self, embed_dim: int, cfg: TransformerConfig) -> nn.Module:
        if self.attention is None:
            return super().build_self_attention(embed_dim, cfg)
        options = {"xformers_att_config": cfg.encoder.xformers_att_config, "self_attention": True}
        return _build(self.attention, self, embed_dim, cfg.encoder.attention_heads, cfg, **options)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *args: Any) -> None:
        for name in FAST_PATH_PARAMETERS:
            state_dict.pop(prefix + name, None)
        nn.Module._load_from_state_dict(self, state_dict, prefix, *args)


class LinformerDecoderLayer(TransformerDecoderLayerBase):
    """Decoder layer whose cross-attention and causal self-attention are built by `cross` and `self_attention`, or
    fairseq's where these are None."""

    def __init__(
        self,
        cfg: TransformerConfig,
        cross: AttentionBuilder | None,
        self_attention: AttentionBuilder | None,
        no_encoder_attn: bool = False,
    ) -> None:
        self.attention = {"cross": cross, "self": self_attention}
        super().__init__(cfg, no_encoder_attn)
        del self.attention
        self.need_attn = False
        keep_dropout_names(self, "TransformerDecoderLayerBase")

    def make_generation_fast_(self, need_attn: bool = False, **options: Any) -> None:
        """Leaves it to the decoder to ask for the weights of the one layer that it returns: for `--print-alignment`,
        fairseq's layers compute those of all."""

    def build_self_attention(
        self, embed_dim: int, cfg: TransformerConfig, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        attention = self.attention["self"]
        if attention is None:
            return super().build_self_attention(embed_dim, cfg, add_bias_kv, add_zero_attn)
        if cfg.cross_self_attention:
            raise ValueError("--cross-self-attention does not go with decoder in --linformer-attention; leave one out")
        options = {
            "add_bias_kv": add_bias_kv,
            "add_zero_attn": add_zero_attn,
            "self_attention": True,
            "xformers_att_config": cfg.decoder.xformers_att_config,
        }
        return _build(attention, self, embed_dim, cfg.decoder.attention_heads, cfg, **options)

    def build_encoder_attention(self, embed_dim: int, cfg: TransformerConfig) -> nn.Module:
        attention = self.attention["cross"]
        if attention is None:
            return super().build_encoder_attention(embed_dim, cfg)
        options = {
            "kdim": cfg.encoder.embed_dim,
            "vdim": cfg.encoder.embed_dim,
            "encoder_decoder_attention": True,
            "xformers_att_config": cfg.encoder.xformers_att_config,
        }
        return _build(attention, self, embed_dim, cfg.decoder.attention_heads, cfg, **options)


def _build(
    attention: AttentionBuilder,
    layer: LinformerEncoderLayer | LinformerDecoderLayer,
    embed_dim: int,
    num_heads: int,
    cfg: TransformerConfig,
    **options: Any,
) -> BaseAttention:
    """Builds an attention with fairseq's settings for all attention."""
    return attention(
        embed_dim,
        num_heads,
        dropout=cfg.attention_dropout,
        q_noise=layer.quant_noise,
        qn_block_size=layer.quant_noise_block_size,
        **options,
    )


def keep_dropout_names(module: nn.Module, name: str) -> None:
    """Gives a subclass's dropout the name of fairseq's class, by which `--retain-dropout-modules` knows it."""
    for child in module.children():
        if isinstance(child, FairseqDropout):
            child.module_name = name


def wrap_layer(layer: Layer, cfg: TransformerConfig) -> Layer:
    """Wraps a new layer as fairseq does, for `--checkpoint-activations`, `--offload-activations` and sharded DDP."""
    if not cfg.checkpoint_activations:
        return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
    return fsdp_wrap(checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations), min_num_params=0)
