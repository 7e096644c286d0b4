"""fairseq's `transformer_lm` with another attention: what its length asks for."""

import logging
from typing import Any

from fairseq.models.transformer_lm import TransformerLanguageModel
from fairseq.modules import LearnedPositionalEmbedding
from omegaconf import DictConfig

from linformer_fairseq.models.config import one_sentence
from linformer_fairseq.models.inference import is_command, is_interactive
from linformer_fairseq.models.register import SwappedModel, register_with_attention
from linformer_fairseq.modules.projections import LinearProjection

logger = logging.getLogger(__name__)


class LinformerTransformerLanguageModel(SwappedModel, TransformerLanguageModel):
    """fairseq's `transformer_lm` with another causal self-attention.

    N is `--max-target-positions`, or `--tokens-per-sample` without it, and one more with `--add-bos-token`. Padding is
    on the right, as in fairseq's tasks.
    """

    @classmethod
    def complete(cls, args: Any) -> None:
        if getattr(args, "max_target_positions", None) is None and getattr(args, "add_bos_token", False):
            args.max_target_positions = args.tokens_per_sample + 1  # fairseq takes no account of the token

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


register_with_attention("transformer_lm", LinformerTransformerLanguageModel)
