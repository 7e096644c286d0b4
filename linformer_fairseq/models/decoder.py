"""fairseq's Transformer decoder with any kind of self- and cross-attention."""

from contextlib import nullcontext
from typing import Any

from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerConfig, TransformerDecoderBase
from torch import Tensor, nn

from linformer_fairseq.models.config import AttentionBuilder
from linformer_fairseq.models.errors import one_sentence
from linformer_fairseq.models.layers import LinformerDecoderLayer, keep_dropout_names, wrap_layer

NO_LAYER = -1
"""As `alignment_layer`: no layer's attention weights, whose (T, n) matrix per head would cost as much as full
attention."""
NO_WEIGHTS = "no weights"
"""As a key of a search's incremental state: nobody reads the weights."""


class LinformerTransformerDecoder(TransformerDecoderBase):
    """fairseq's decoder, whose self- and cross-attention may be of any kind.

    It returns the weights of cross-attention over the source as the task padded it. Without `alignment_layer` they are
    left out in training unless `trains_alignments`, and in a search after `make_generation_fast_(need_attn=False)` or
    where `NO_WEIGHTS` is in its incremental state.

    Args:
        cross: builds the cross-attention of each layer; None for full attention.
        self_attention: builds the causal self-attention of each layer; None for full attention.
    """

    def __init__(
        self,
        cfg: TransformerConfig,
        dictionary: Dictionary,
        embed_tokens: nn.Embedding,
        cross: list[AttentionBuilder] | None,
        self_attention: list[AttentionBuilder] | None,
        no_encoder_attn: bool = False,
    ) -> None:
        full = [None] * cfg.decoder.layers
        self.layer_attention = zip(cross or full, self_attention or full, strict=True)
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn)
        del self.layer_attention
        self.is_causal_by_itself = self_attention is not None
        self.trains_alignments = False
        """Whether the criterion may read the last layer's weights."""
        self.needs_weights = True
        """Whether whoever calls the decoder in a search may."""
        self.ends_in_one_sentence = False
        """Whether a refusal ends the program, as `one_sentence` does: in fairseq's commands."""
        keep_dropout_names(self, "TransformerDecoder")

    def forward(self, *arguments: Any, **options: Any) -> Any:
        with one_sentence() if self.ends_in_one_sentence else nullcontext():
            return super().forward(*arguments, **options)

    def build_decoder_layer(self, cfg: TransformerConfig, no_encoder_attn: bool = False) -> nn.Module:
        return wrap_layer(LinformerDecoderLayer(cfg, *next(self.layer_attention), no_encoder_attn), cfg)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor | None:
        """None where self-attention hides the future by itself, without a (T, T) tensor."""
        return None if self.is_causal_by_itself else super().buffered_future_mask(tensor)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        if full_context_alignment and self.is_causal_by_itself:
            raise ValueError("full_context_alignment needs a decoder with full self-attention")
        if alignment_layer is None and not self._gives_weights(incremental_state):
            alignment_layer = NO_LAYER
        return super().extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )

    def _gives_weights(self, incremental_state: dict[str, Any] | None) -> bool:
        if self.training:
            return self.trains_alignments
        return incremental_state is None or (self.needs_weights and NO_WEIGHTS not in incremental_state)

    def make_generation_fast_(self, need_attn: bool = False, **options: Any) -> None:
        """Leaves the last layer's weights out of searches from now on, unless they are needed. fairseq-generate calls
        it, and needs them where it prints alignments."""
        self.needs_weights = need_attn
