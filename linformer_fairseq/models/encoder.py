"""fairseq's Transformer encoder with any kind of self-attention."""

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig, TransformerEncoderBase
from torch import Tensor, nn

from linformer_fairseq.models.config import AttentionBuilder
from linformer_fairseq.models.layers import LinformerEncoderLayer, keep_dropout_names, wrap_layer
from linformer_fairseq.modules.ops.padding import padding_of


class LinformerTransformerEncoder(TransformerEncoderBase):
    """fairseq's encoder, whose self-attention may be of any kind.

    It computes on right-padded sources, so that no layer has to move its tokens for itself, and gives what it makes of
    them in the order of the sources.

    Args:
        attention: builds the self-attention of each layer; None for full attention.
        single_rows: leave it to cross-attention to share the row of a sentence among the hypotheses of a search, as
            fairseq's BART does, instead of repeating it for each.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        attention: list[AttentionBuilder] | None,
        single_rows: bool = False,
    ) -> None:
        full: list[AttentionBuilder | None] = [None] * cfg.encoder.layers
        self.layer_attention = iter(attention or full)
        super().__init__(cfg, dictionary, embed_tokens)
        del self.layer_attention
        self.single_rows = single_rows
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
        mask = src_tokens.eq(self.padding_idx)
        padding = padding_of(mask)
        if padding is None or padding.order is None:
            out = super().forward(src_tokens, src_lengths, return_all_hiddens, token_embeddings)
        else:
            if token_embeddings is not None:
                token_embeddings = padding.put_right(token_embeddings.transpose(0, 1)).transpose(0, 1)
            tokens = src_tokens.gather(1, padding.order)
            out = super().forward(tokens, src_lengths, return_all_hiddens, token_embeddings)
            for name in ("encoder_out", "encoder_states", "fc_results"):
                out[name] = [None if x is None else padding.put_back(x) for x in out[name]]
            out["encoder_embedding"] = [
                padding.put_back(x.transpose(0, 1)).transpose(0, 1) for x in out["encoder_embedding"]
            ]
        out["encoder_padding_mask"] = [mask]  # which has been looked at, so that the decoder need not wait for it
        return out

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> dict[str, list[Tensor]]:
        """Returns the output for the hypotheses of a search in a new order: the output itself where cross-attention
        shares its rows, and keeps those of the sentences that stay."""
        if self.single_rows:
            return encoder_out
        return super().reorder_encoder_out(encoder_out, new_order)
