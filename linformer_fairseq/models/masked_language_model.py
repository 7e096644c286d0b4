"""fairseq's `roberta` with another attention, and a small architecture of it."""

from argparse import Namespace
from typing import Any

import torch
from fairseq.models import register_model_architecture
from fairseq.models.roberta import RobertaModel, base_architecture
from torch import Tensor

from linformer_fairseq.models.linformer_example import adopt_settings, adopt_weights
from linformer_fairseq.models.register import SwappedModel, register_with_attention


class LinformerRobertaModel(SwappedModel, RobertaModel):
    """fairseq's `roberta` with another self-attention: an encoder for masked language models and classification.

    N is `--max-positions`, or `--tokens-per-sample` without it. A checkpoint of the model of the same name in
    fairseq's `examples/linformer` loads.
    """

    @classmethod
    def complete(cls, args: Any) -> None:
        adopt_settings(args)

    def forward(self, src_tokens: Tensor, *arguments: Any, **options: Any) -> Any:
        """fairseq's, after a look at the length, as the hub's `fill_mask` has none.

        Raises:
            ValueError: a text that is longer than the model.
        """
        longest = self.max_positions()
        if src_tokens.size(1) > longest:
            tokens = int(src_tokens.ne(self.encoder.sentence_encoder.padding_idx).sum(1).max())
            if tokens > longest:
                raise ValueError(f"a text of {tokens} tokens is longer than the {longest} that the model takes: cut it")
        return super().forward(src_tokens, *arguments, **options)

    def adopt(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """Renames the weights of fairseq's example, and refuses an output layer that is not the embeddings, where it is
        in this model: either would replace the other. The example left them apart at first, whatever its flags said."""
        state_dict, encoder = adopt_weights(state_dict), self.encoder
        names = ("encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight")
        embeddings, output = map(state_dict.get, names)
        tied = encoder.lm_head.weight is encoder.sentence_encoder.embed_tokens.weight
        if tied and embeddings is not None and output is not None and not torch.equal(embeddings, output):
            raise ValueError("the checkpoint's output layer has weights of its own: give --untie-weights-roberta")
        return state_dict


def tiny_architecture(args: Namespace) -> None:
    """A model for tests and small machines, which fairseq has none of: 4 layers of width 128."""
    defaults = {
        "encoder_layers": 4,
        "encoder_embed_dim": 128,
        "encoder_ffn_embed_dim": 512,
        "encoder_attention_heads": 4,
    }
    for name, default in defaults.items():
        setattr(args, name, getattr(args, name, default))
    base_architecture(args)


# a Transformer of that size, to compare with
register_model_architecture("roberta", "roberta_tiny")(tiny_architecture)
register_with_attention("roberta", LinformerRobertaModel)
