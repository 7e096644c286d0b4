"""The `linformer_roberta` model, with its architectures `linformer_roberta*` and `two_level_roberta*`."""

from argparse import ArgumentParser, Namespace
from typing import Any

import torch
from fairseq.models import register_model, register_model_architecture
from fairseq.models.roberta import (
    RobertaModel,
    base_architecture,
    roberta_base_architecture,
    roberta_large_architecture,
)
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_sentence_encoder import init_bert_params
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig
from torch import Tensor

from linformer_fairseq.models.architectures import Architecture, plain_namespace, prefixed, register_architectures
from linformer_fairseq.models.config import add_flags
from linformer_fairseq.models.encoder import LinformerTransformerEncoder
from linformer_fairseq.models.encoder_config import EncoderAttentionConfig, encoder_default_flags
from linformer_fairseq.models.errors import one_sentence
from linformer_fairseq.models.exact_length import TellsExactLength
from linformer_fairseq.models.linformer_example import adopt_settings, adopt_weights
from linformer_fairseq.models.loading import ChecksProjections


@register_model("linformer_roberta")
class LinformerRobertaModel(TellsExactLength, ChecksProjections, RobertaModel):
    """fairseq's `roberta` with another self-attention: an encoder for masked language models and classification.

    All flags of `roberta` keep their meaning; `--linformer-...` choose the attention. The architectures
    `linformer_roberta*` are Linformer as published (Wang et al., 2020, section 5), `two_level_roberta*` attend in two
    levels, unless flags say otherwise. N is `--max-positions`, or `--tokens-per-sample` without it. A checkpoint of
    the model of the same name in fairseq's `examples/linformer` loads.
    """

    layer_flags = "--linformer-projection, --linformer-value-convolution and number of layers"
    shape_flags = (
        "--linformer-k, --linformer-sharing, --linformer-value-convolution, --max-positions and --tokens-per-sample"
    )

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_flags(parser, EncoderAttentionConfig)

    @classmethod
    def build_model(cls, args: Namespace | DictConfig, task: FairseqTask) -> "LinformerRobertaModel":
        args = plain_namespace(args, resolve=True)
        with one_sentence():
            adopt_settings(args)
            config = EncoderAttentionConfig.from_namespace(args)
            # fairseq builds embeddings, encoder and head in one; its encoder gives way to ours, at the cost of twice
            # the memory while the model is built
            model = super().build_model(args, task)
            cfg = TransformerConfig.from_namespace(model.args)
            side = cfg.encoder
            attention = config.attention("encoder", side.layers, cfg.max_source_positions, side.layers_to_keep)
            model.encoder.sentence_encoder = LinformerTransformerEncoder(
                cfg, task.source_dictionary, model.encoder.sentence_encoder.embed_tokens, attention
            )
            model.encoder.sentence_encoder.apply(init_bert_params)
            model.exact_below = config.exact_below
        return model

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

    def load_state_dict(
        self,
        state_dict: dict[str, Tensor],
        strict: bool = True,
        model_cfg: Namespace | DictConfig | None = None,
        args: Namespace | None = None,
    ) -> Any:
        state_dict = adopt_weights(state_dict)
        with one_sentence():
            self._check_output(state_dict)
        return super().load_state_dict(state_dict, strict, model_cfg, args)

    def _check_output(self, state_dict: dict[str, Tensor]) -> None:
        """Refuses an output layer that is not the embeddings, where it is in this model: either would replace the
        other. fairseq's example left them apart at first, whatever its flags said."""
        encoder = self.encoder
        names = ("encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight")
        embeddings, output = map(state_dict.get, names)
        tied = encoder.lm_head.weight is encoder.sentence_encoder.embed_tokens.weight
        if tied and embeddings is not None and output is not None and not torch.equal(embeddings, output):
            raise ValueError("the checkpoint's output layer has weights of its own: give --untie-weights-roberta")


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

FAIRSEQ_ROBERTA_ARCHITECTURES: dict[str, Architecture] = {
    "roberta": base_architecture,
    "roberta_tiny": tiny_architecture,
    "roberta_base": roberta_base_architecture,
    "roberta_large": roberta_large_architecture,
}
"""The function of each architecture of `roberta` that has counterparts here, by its name in fairseq."""
ROBERTA_ARCHITECTURES = prefixed(FAIRSEQ_ROBERTA_ARCHITECTURES)
"""The kind of attention of every architecture."""

register_architectures("linformer_roberta", FAIRSEQ_ROBERTA_ARCHITECTURES, encoder_default_flags)
