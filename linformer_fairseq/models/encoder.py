"""fairseq's Transformer encoder with projected self-attention."""

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from torch import Tensor, nn

from linformer_fairseq.models.config import AttentionBuilder
from linformer_fairseq.models.layers import LinformerEncoderLayer, keep_dropout_names, projected_attention, wrap_layer
from linformer_fairseq.models.right_padding import right_padding_order
from linformer_fairseq.modules.forward_cache import ForwardCache


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
        self.length_cache = ForwardCache()
        for attention in projected_attention(self, cross=False):
            attention.share_lengths(self.length_cache)
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
        with self.length_cache.open():
            out = super().forward(src_tokens.gather(1, order), src_lengths, return_all_hiddens, token_embeddings)
        out["src_tokens"] = [src_tokens]
        return out

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """Returns the output for the rows of a new order. Where every sentence is repeated for a search, it says in
        "beams" which sentence each hypothesis is of, (B, h), and is moved only when sentences come or go: otherwise
        hypotheses change places within their sentence, and have the same rows.

        The search at hand knows its beam. What fairseq tells a model may be that of another search.
        """
        if beams := encoder_out.get("beams"):
            before, hypotheses = beams[0].flatten(), beams[0].size(1)
            sentences = before[new_order]
            if len(sentences) == len(before):
                same = (sentences == before).all()
                torch._assert_async(same, "hypotheses must keep the places of their sentence")  # nothing waits for it
                return encoder_out
        else:
            sentences, hypotheses = new_order, len(new_order) // encoder_out["encoder_out"][0].size(1)
        out = super().reorder_encoder_out(encoder_out, new_order)
        if hypotheses > 1 and len(sentences) % hypotheses == 0:
            out["beams"] = [sentences.view(-1, hypotheses)]
        return out
