"""fairseq's Transformer encoder with projected self-attention."""

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from torch import Tensor, nn

from linformer_fairseq.models.config import AttentionBuilder
from linformer_fairseq.models.layers import LinformerEncoderLayer, keep_dropout_names, wrap_layer
from linformer_fairseq.models.right_padding import right_padding_order


class LinformerTransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder with projected self-attention; whatever the task's padding, it computes on right-padded
    sources and returns its outputs so. `src_tokens` of the output keeps the tokens as they came.

    Args:
        attention: builds the self-attention of each layer; None for full attention.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        attention: list[AttentionBuilder] | None,
    ) -> None:
        full: list[AttentionBuilder | None] = [None] * cfg.encoder.layers
        self.layer_attention = iter(attention or full)
        super().__init__(cfg, dictionary, embed_tokens)
        del self.layer_attention
        keep_dropout_names(self, "TransformerEncoder")

    def build_encoder_layer(self, cfg: TransformerConfig) -> nn.Module:
        return wrap_layer(LinformerEncoderLayer(cfg, next(self.layer_attention), self.return_fc), cfg)

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
