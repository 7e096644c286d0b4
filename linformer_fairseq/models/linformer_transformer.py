"""The `linformer_transformer` model, with its architectures `linformer_transformer*` and `two_level_transformer*`."""

import logging
from argparse import ArgumentParser, Namespace
from typing import Any

from fairseq import utils
from fairseq.data import Dictionary
from fairseq.models import register_model
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
from omegaconf import DictConfig
from torch import nn

from linformer_fairseq.models.architectures import (
    Architecture,
    plain_namespace,
    prefixed,
    register_architectures,
)
from linformer_fairseq.models.config import AttentionBuilder, LinformerConfig, add_flags, default_flags
from linformer_fairseq.models.decoder import LinformerTransformerDecoder
from linformer_fairseq.models.encoder import LinformerTransformerEncoder
from linformer_fairseq.models.errors import one_sentence
from linformer_fairseq.models.exact_length import TellsExactLength
from linformer_fairseq.models.inference import drops_ragged_batches, is_command, is_interactive
from linformer_fairseq.models.loading import ChecksProjections
from linformer_fairseq.tasks.hub import DOCUMENT_FLAGS, DocumentHubInterface

logger = logging.getLogger(__name__)


@register_model("linformer_transformer")
class LinformerTransformerModel(TellsExactLength, ChecksProjections, TransformerModel):
    """fairseq's `transformer` with another attention in any of three places: the encoder's self-attention, the
    decoder's cross-attention and its causal self-attention.

    All flags of `transformer` keep their meaning; `--linformer-...` choose the attention. The architectures
    `linformer_transformer*` are Linformer as published (Wang et al., 2020), `two_level_transformer*` attend in two
    levels, unless flags say otherwise.
    """

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        super().add_args(parser)
        add_flags(parser, LinformerConfig)

    @classmethod
    def build_model(cls, args: Namespace | DictConfig, task: FairseqTask) -> "LinformerTransformerModel":
        settings = getattr(task, "cfg", None) or getattr(task, "args", None)
        with one_sentence():
            if utils.eval_bool(str(getattr(settings, "left_pad_target", False))):
                raise ValueError("--left-pad-target is not supported: leave it out, targets are padded on the right")
        args = plain_namespace(args, resolve=True)
        model = super().build_model(args, task)
        model.exact_below = LinformerConfig.from_namespace(args).exact_below
        model.decoder.trains_alignments = bool(getattr(settings, "load_alignments", False))
        return model

    @classmethod
    def from_pretrained(
        cls,
        model_name_or_path: str,
        checkpoint_file: str = "model.pt",
        data_name_or_path: str = ".",
        **kwargs: Any,
    ) -> DocumentHubInterface:
        """fairseq's `from_pretrained`, whose interface translates documents as well.

        Args:
            kwargs: flags that replace those of the checkpoint; `task="document_translation"` and flags of that task
                for one that was trained as fairseq's `translation`.
        """
        task = kwargs.pop("task", None)
        hub = super().from_pretrained(model_name_or_path, checkpoint_file, data_name_or_path, **kwargs)
        flags = {name: value for name, value in kwargs.items() if task and name in DOCUMENT_FLAGS}
        return DocumentHubInterface.from_hub(hub, task, **flags)

    def prepare_for_inference_(self, cfg: DictConfig) -> None:
        """fairseq's. The hub lets each call choose whether it reads attention weights, so that there they are kept."""
        super().prepare_for_inference_(cfg)
        if not is_command(cfg):
            self.decoder.needs_weights = True
            return
        self.decoder.ends_in_one_sentence = True  # `--match-source-len` goes beyond the longest target
        multiple = cfg.dataset.required_batch_size_multiple
        keeps_all = is_interactive(cfg) or cfg.task._name == "document_translation"
        if multiple > 1 and not keeps_all and drops_ragged_batches():
            logger.warning(
                f"the last sentences are left out where their batch is no multiple of {multiple}: give "
                "--required-batch-size-multiple 1 to translate all"
            )

    @classmethod
    def build_encoder(
        cls, cfg: TransformerConfig, src_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> LinformerTransformerEncoder:
        with one_sentence():
            # where a decoder attends to itself and the source at once, it needs a row for each of its own
            single_rows = "cross" in LinformerConfig.from_namespace(cfg).places and not cfg.cross_self_attention
            return LinformerTransformerEncoder(cfg, src_dict, embed_tokens, _attention(cfg, "encoder"), single_rows)

    @classmethod
    def build_decoder(
        cls, cfg: TransformerConfig, tgt_dict: Dictionary, embed_tokens: nn.Embedding
    ) -> LinformerTransformerDecoder:
        with one_sentence():
            cross, self_attention = _attention(cfg, "cross"), _attention(cfg, "decoder")
            return LinformerTransformerDecoder(
                cfg, tgt_dict, embed_tokens, cross, self_attention, cfg.no_cross_attention
            )


def _attention(cfg: TransformerConfig, place: str) -> list[AttentionBuilder] | None:
    """The attention of every layer at a place; None where it is full attention."""
    config = LinformerConfig.from_namespace(cfg)
    if place not in config.places:
        return None
    side = cfg.encoder if place == "encoder" else cfg.decoder
    longest = cfg.max_target_positions if place == "decoder" else cfg.max_source_positions
    return config.attention(place, side.layers, longest, side.layers_to_keep)


FAIRSEQ_ARCHITECTURES: dict[str, Architecture] = {
    "transformer": base_architecture,
    "transformer_tiny": tiny_architecture,
    "transformer_iwslt_de_en": transformer_iwslt_de_en,
    "transformer_wmt_en_de": transformer_wmt_en_de,
    "transformer_vaswani_wmt_en_de_big": transformer_vaswani_wmt_en_de_big,
    "transformer_wmt_en_de_big": transformer_wmt_en_de_big,
}
"""fairseq's function for each of its architectures that have counterparts here."""
ARCHITECTURES = prefixed(FAIRSEQ_ARCHITECTURES)
"""The kind of attention of every architecture."""

register_architectures("linformer_transformer", FAIRSEQ_ARCHITECTURES, default_flags)
