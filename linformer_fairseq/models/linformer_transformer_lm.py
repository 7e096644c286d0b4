"""The `linformer_transformer_lm` model, with its architectures `linformer_transformer_lm*` and
`two_level_transformer_lm*`."""

import logging
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import (
    TransformerLanguageModel,
    TransformerLanguageModelConfig,
    transformer_lm_baevski_wiki103,
    transformer_lm_gpt,
    transformer_lm_gpt2_tiny,
)
from fairseq.modules import LearnedPositionalEmbedding
from fairseq.tasks import FairseqTask
from omegaconf import DictConfig

from linformer_fairseq.models.architectures import Architecture, prefixed
from linformer_fairseq.models.config import LanguageModelAttentionConfig
from linformer_fairseq.models.decoder import LinformerTransformerDecoder
from linformer_fairseq.models.errors import one_sentence
from linformer_fairseq.models.exact_length import TellsExactLength
from linformer_fairseq.models.inference import is_command, is_interactive
from linformer_fairseq.models.loading import ChecksProjections
from linformer_fairseq.modules.projections import LinearProjection

logger = logging.getLogger(__name__)

_Attention = LanguageModelAttentionConfig.with_kinds()


@dataclass
class LinformerLanguageModelConfig(_Attention, TransformerLanguageModelConfig):  # type: ignore[misc, valid-type]
    """The flags of fairseq's `transformer_lm`, and those of causal attention.

    fairseq takes them when the model is registered, so that kinds that other packages register later are not among
    them.
    """


@register_model("linformer_transformer_lm", dataclass=LinformerLanguageModelConfig)
class LinformerTransformerLanguageModel(TellsExactLength, ChecksProjections, TransformerLanguageModel):
    """fairseq's `transformer_lm` with another causal self-attention.

    The architectures `linformer_transformer_lm*` have Linformer's with a state of constant size, and
    `two_level_transformer_lm*` that of two levels, unless `--linformer-projection` says otherwise. N is
    `--max-target-positions`, or `--tokens-per-sample` without it, and one more with `--add-bos-token`. Padding is on
    the right, as in fairseq's tasks.
    """

    layer_flags = "number of layers"
    shape_flags = (
        "--linformer-k, --linformer-window, --linformer-sharing, --max-target-positions and --tokens-per-sample"
    )

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def build_model(cls, args: Namespace | DictConfig, task: FairseqTask) -> "LinformerTransformerLanguageModel":
        with one_sentence():
            config = LanguageModelAttentionConfig.from_namespace(args)
            if getattr(args, "max_target_positions", None) is None and getattr(args, "add_bos_token", False):
                args.max_target_positions = args.tokens_per_sample + 1  # fairseq takes no account of the token
            # fairseq builds embeddings and decoder in one; its embeddings are kept, its decoder gives way to ours, at
            # the cost of twice the memory while the model is built
            embed_tokens = super().build_model(args, task).decoder.embed_tokens
            cfg = TransformerConfig.from_namespace(args)
            kept = cfg.decoder.layers_to_keep
            attention = config.attention("decoder", cfg.decoder.layers, cfg.max_target_positions, kept)
            decoder = LinformerTransformerDecoder(
                cfg,
                task.target_dictionary,
                embed_tokens,
                cross=None,
                self_attention=attention,
                no_encoder_attn=True,
            )
            model = cls(decoder)
            model.exact_below = config.exact_below
            return model

    @property
    def longest_input(self) -> int | None:
        """The most tokens that there are parameters for; None without parameters of length."""
        learned = isinstance(self.decoder.embed_positions, LearnedPositionalEmbedding)
        limited = learned or any(isinstance(module, LinearProjection) for module in self.decoder.modules())
        return int(self.max_positions()) if limited else None

    def forward(self, *arguments: Any, **options: Any) -> Any:
        """fairseq's. Nothing there keeps `--add-bos-token` and `--lm-path` within the longest input."""
        with one_sentence():
            return super().forward(*arguments, **options)

    def prepare_for_inference_(self, cfg: DictConfig) -> None:
        """fairseq's, once it is known that what the command asks for is not longer than the model."""
        if is_command(cfg):
            with one_sentence():
                if not hasattr(cfg.task, "tokens_per_sample"):
                    self._check_translations(cfg)
                elif not is_interactive(cfg):  # which makes no blocks
                    self._check_blocks(cfg)
            self.decoder.ends_in_one_sentence = True
        super().prepare_for_inference_(cfg)

    def _check_translations(self, cfg: DictConfig) -> None:
        """Looks at the length of the translations that this model is `--lm-path` of.

        Raises:
            ValueError: they may become longer than the model whatever the source.
        """
        # documents are cut where their translations become longer
        if self.longest_input is None or cfg.task._name == "document_translation":
            return
        most, given = self.longest_input - 1, cfg.generation  # the model sees a token in front of the translation
        if given.max_len_b > most:
            raise ValueError(
                f"the language model of --lm-path takes {most} tokens of a translation, and --max-len-b lets it have "
                f"{given.max_len_b}: give --max-len-b {most} or less"
            )
        if given.max_len_a > 0 or given.match_source_len:
            logger.warning(
                f"the language model of --lm-path takes {most} tokens of a translation, and a longer one ends this "
                f"command: give --max-len-a 0 --max-len-b {most} and no --match-source-len to be sure that there is "
                "none"
            )

    def _check_blocks(self, cfg: DictConfig) -> None:
        """Looks at the blocks of text that are to be evaluated.

        Raises:
            ValueError: they are longer than the model, so that fairseq-eval-lm would leave them out without a word.
        """
        bos, context = bool(cfg.task.add_bos_token), cfg.eval_lm.context_window
        tokens = cfg.task.tokens_per_sample + context  # fairseq-eval-lm has subtracted the context by now
        limited = self.longest_input is not None
        most = self.max_positions() - bos if limited else self.max_positions() + context
        by_sentence = cfg.task.sample_break_mode == "eos" and not (context and limited)
        if tokens > most and not by_sentence:
            token = ", with the token of --add-bos-token," if bos else ""
            raise ValueError(
                f"--tokens-per-sample {tokens} makes blocks that{token} are longer than the model: give "
                f"--tokens-per-sample {most} or less"
            )


def _with_projection(kind: str, architecture: Architecture) -> Architecture:
    """Adds a kind of attention to the defaults of fairseq's own."""

    def fill_in(args: Namespace) -> None:
        args.linformer_projection = getattr(args, "linformer_projection", kind)
        architecture(args)

    return fill_in


def _no_defaults(args: Namespace) -> None:
    """The architecture of the model's own defaults."""


FAIRSEQ_LM_ARCHITECTURES: dict[str, Architecture] = {
    "transformer_lm": _no_defaults,
    "transformer_lm_wiki103": transformer_lm_baevski_wiki103,
    "transformer_lm_gpt": transformer_lm_gpt,
    "transformer_lm_gpt2_tiny": transformer_lm_gpt2_tiny,
}
"""fairseq's function for each of its architectures that have counterparts here."""
LM_ARCHITECTURES = prefixed(FAIRSEQ_LM_ARCHITECTURES)
"""The kind of attention of every architecture."""

for _arch, _kind in LM_ARCHITECTURES.items():
    if _arch != "linformer_transformer_lm":  # which fairseq registers with the model
        _base = FAIRSEQ_LM_ARCHITECTURES[_arch[_arch.index("transformer") :]]
        register_model_architecture("linformer_transformer_lm", _arch)(_with_projection(_kind, _base))
