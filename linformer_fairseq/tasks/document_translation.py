"""The task `document_translation`: fairseq's `translation` of whole documents."""

import logging
import math
from argparse import Namespace
from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any, Optional

import numpy as np
from fairseq import utils
from fairseq.criterions import FairseqCriterion
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from fairseq.dataclass import ChoiceEnum
from fairseq.models import BaseFairseqModel
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor, nn

from linformer_fairseq.models.config import one_sentence
from linformer_fairseq.tasks.parts import Hypothesis, counted_in_parts, cut, even_parts, halves, join, sentence_lengths
from linformer_fairseq.tasks.sentence_search import (
    SentenceCountSearch,
    SentenceLimits,
    leave_attention_out,
    pad_lengths,
)
from linformer_fairseq.tasks.sentences import DocumentDictionary, ScoredText, SentenceEncoder

logger = logging.getLogger(__name__)

SentenceCount: Any = ChoiceEnum(["forced", "free"])
DEFAULT_POSITIONS = (TranslationConfig.max_source_positions, TranslationConfig.max_target_positions)
HALVED = "reaches the longest target before its end, and is made again in two parts"
"""What the log says of such a translation."""
WHOLE_ONLY = ("score_reference", "prefix_size", "constraints")
"""Flags of fairseq that a document in parts cannot be translated with."""


@dataclass
class DocumentTranslationConfig(TranslationConfig):
    """The flags of fairseq's `translation`, and those of documents."""

    sentence_separator: str = field(
        default="<sep>", metadata={"help": "word of both dictionaries that stands between two sentences of a document"}
    )
    sentence_count: SentenceCount = field(
        default="forced",
        metadata={"help": "translations have as many sentences as their source (forced), or what the search finds"},
    )
    no_split_documents: bool = field(
        default=False,
        metadata={"help": "refuse documents that are longer than the model instead of translating them in parts"},
    )
    part_tokens: Optional[int] = field(
        default=None,
        metadata={"help": "translate documents in parts of at most so many tokens (default: what the model takes)"},
    )


@register_task("document_translation", dataclass=DocumentTranslationConfig)
class DocumentTranslationTask(TranslationTask):
    """Translates documents: a line of the binarised text is a document, whose sentences a separator divides.

    Models train as in fairseq's `translation`. Where fairseq translates, that is, computes no losses, documents that
    are longer than the model are cut at sentence borders, translated part by part and joined again, and the model's own
    `--max-source-positions` and `--max-target-positions` hold where these flags are left at fairseq's default.

    Raises:
        ValueError: a dictionary without the separator, or `part_tokens` that leave room for nothing or that nothing may
            be cut at.
    """

    cfg: DocumentTranslationConfig
    tokenizer: Any

    def __init__(self, cfg: DocumentTranslationConfig, src_dict: Dictionary, tgt_dict: Dictionary) -> None:
        super().__init__(cfg, src_dict, tgt_dict)
        if cfg.part_tokens is not None and cfg.part_tokens < 2:
            raise ValueError(f"--part-tokens {cfg.part_tokens} leaves no room for a word and the end: give 2 or more")
        if cfg.part_tokens and cfg.no_split_documents:
            raise ValueError("--part-tokens and --no-split-documents ask for opposite things: leave one out")
        separator = cfg.sentence_separator
        for side, dictionary in (("source", src_dict), ("target", tgt_dict)):
            if len(separator.split()) != 1 or dictionary.index(separator) < dictionary.nspecial:
                raise ValueError(
                    f"the {side} dictionary has no word {separator!r} to divide sentences: put it between the "
                    "sentences of every document before fairseq-preprocess, or name the word that is there with "
                    "--sentence-separator"
                )
            dictionary.separator = separator
        self.source_separator: int = src_dict.index(separator)
        self.target_separator: int = tgt_dict.index(separator)
        self.computes_losses = False
        """fairseq builds a criterion where it trains and validates, and none where it translates."""
        self.checkpoint_positions = (0, 0)
        """The longest source and target of the checkpoints that were loaded."""
        self.whole_only: str | None = None
        """The flag of the last generator, if any, that works with documents only that the model takes whole."""

    @classmethod
    def load_dictionary(cls, filename: str) -> DocumentDictionary:
        return DocumentDictionary.load(filename)

    @classmethod
    def setup_task(cls, cfg: DocumentTranslationConfig, **kwargs: Any) -> "DocumentTranslationTask":
        with one_sentence():
            return super().setup_task(cfg, **kwargs)

    def build_criterion(self, *arguments: Any, **options: Any) -> FairseqCriterion:
        self.computes_losses = True
        return super().build_criterion(*arguments, **options)

    def build_model(self, cfg: Namespace, from_checkpoint: bool = False) -> BaseFairseqModel:
        model = super().build_model(cfg, from_checkpoint)
        for name, words in model.named_modules():
            if name in ("encoder.embed_tokens", "decoder.embed_tokens"):
                words._register_load_state_dict_pre_hook(_check_words, with_module=True)
        if self.cfg.eval_bleu:  # with this tokeniser fairseq makes the text that it scores, and nothing else
            self.tokenizer = ScoredText(self.tokenizer, self.cfg.sentence_separator)
        if from_checkpoint:
            own = model.max_positions()
            self.checkpoint_positions = tuple(map(max, zip(self.checkpoint_positions, own, strict=True)))
        return model

    def build_tokenizer(self, args: Any) -> SentenceEncoder | None:
        tokenizer = super().build_tokenizer(args)
        return tokenizer and SentenceEncoder(tokenizer, self.cfg.sentence_separator)

    def build_bpe(self, args: Any) -> SentenceEncoder | None:
        bpe = super().build_bpe(args)
        return bpe and SentenceEncoder(bpe, self.cfg.sentence_separator)

    def max_positions(self) -> tuple[int, int]:
        """The longest source and target: the flags, or of a loaded checkpoint where they are fairseq's default. To
        translate, a source is a part of a document."""
        given = super().max_positions()
        if self.computes_losses:
            return given
        source, target = (
            own if own and flag == default else flag
            for flag, default, own in zip(given, DEFAULT_POSITIONS, self.checkpoint_positions, strict=True)
        )
        return min(source, self.cfg.part_tokens or source), target

    def get_batch_iterator(self, dataset: LanguagePairDataset, **options: Any) -> EpochBatchIterator:
        """Returns fairseq's iterator, with `required_batch_size_multiple` 1: with a larger one newer fairseq leaves the
        last, longest documents out, of every epoch and of every evaluation.

        To translate, documents count as much as the longest of their parts. For losses, those that are too long are
        left out of a training, and refused in a validation.
        """
        limits = options.get("max_positions") or self.max_positions()
        skip = options.get("ignore_invalid_inputs", False)
        with one_sentence():
            if not self.computes_losses:
                dataset = self._in_parts(dataset, options.get("max_tokens") or math.inf, limits, skip)
            elif not skip:
                self._refuse_longer(
                    dataset,
                    limits,
                    f"translation is longer than the {limits[0]:,} source and {limits[1]:,} target tokens that the "
                    "model takes: cut it, give larger --max-source-positions and --max-target-positions, or leave such "
                    "documents out with --skip-invalid-size-inputs-valid-test",
                )
        return super().get_batch_iterator(dataset, **{**options, "required_batch_size_multiple": 1})

    def _in_parts(
        self, dataset: LanguagePairDataset, max_tokens: float, limits: tuple[int, int], skip: bool
    ) -> LanguagePairDataset:
        """Looks at all documents before any is translated, and counts them as `counted_in_parts` does.

        Args:
            limits: the longest source and target.
            skip: leave a document that cannot be cut to fairseq's filter instead of refusing it.

        Raises:
            ValueError: a document that cannot be cut, or a part that exceeds `max_tokens`.
        """
        self._check_whole(dataset, limits)
        longest, longest_target = limits
        sizes = dataset.src_sizes.copy()
        for index in np.flatnonzero(sizes > longest).tolist():
            try:
                sizes[index] = max(map(len, self._parts(dataset.src[index], longest, index)))
            except ValueError:
                if not skip:
                    raise
        for index in np.flatnonzero((sizes > max_tokens) & (sizes <= longest)).tolist():
            raise ValueError(
                f"{self._name(dataset.src[index], index)} takes {sizes[index]:,} tokens at once, more than "
                f"--max-tokens {max_tokens}: give a larger --max-tokens, or a smaller --max-source-positions, at which "
                "documents are cut"
            )
        return counted_in_parts(dataset, sizes, min(longest_target, max_tokens))

    def _check_whole(self, dataset: LanguagePairDataset, limits: tuple[int, int]) -> None:
        """Refuses documents that the model does not take whole beside a flag that needs them so.

        Raises:
            ValueError: there is one.
        """
        if self.whole_only:
            self._refuse_longer(
                dataset,
                limits if self.whole_only == "--score-reference" else (limits[0], math.inf),
                f"reference is longer than the model, and {self.whole_only} works with whole documents only: leave the "
                "document or the flag out",
            )

    def _refuse_longer(self, dataset: LanguagePairDataset, limits: tuple[int, float], told: str) -> None:
        """Refuses documents whose source or target is longer than the limits, in a sentence that ends as told.

        Raises:
            ValueError: there is one.
        """
        longer = dataset.src_sizes > limits[0]
        if dataset.tgt_sizes is not None:
            longer |= dataset.tgt_sizes > limits[1]
        for index in np.flatnonzero(longer).tolist():
            raise ValueError(f"{self._name(dataset.src[index], index)} or its {told}")

    def _name(self, document: Tensor, index: int | None = None) -> str:
        """Returns what a message calls a document: its number, as in fairseq's output, and its first words."""
        words = self.src_dict.string(utils.strip_pad(document, self.src_dict.pad())[:6])
        return f'{"the document" if index is None else f"document {index}"} ("{words} ...")'

    def _parts(self, document: Tensor, longest: int, index: int | None = None) -> list[Tensor]:
        """Cuts a document where it is longer than `longest` tokens without its padding.

        Raises:
            ValueError: with `--no-split-documents`, or where a sentence alone is longer.
        """
        document = utils.strip_pad(document, self.src_dict.pad())
        if len(document) <= longest:
            return [document]
        name = self._name(document, index)
        limit = "--part-tokens allows" if longest == self.cfg.part_tokens else "the model takes"
        if self.cfg.no_split_documents:
            raise ValueError(
                f"{name} has {len(document):,} tokens, and the model takes {longest:,}: leave out "
                "--no-split-documents, or shorten the document"
            )
        lengths = sentence_lengths(document, self.source_separator)
        for number, length in enumerate(lengths, 1):
            if length >= longest:
                raise ValueError(
                    f"sentence {number} of {name} has {length:,} subwords, and {limit} {longest - 1:,}: put "
                    f"{self.cfg.sentence_separator} where it can be cut"
                )
        return cut(document, self.source_separator, even_parts(lengths, longest))

    def build_generator(
        self, models: list[BaseFairseqModel], args: Any, *arguments: Any, **options: Any
    ) -> SequenceGenerator | SequenceScorer:
        """Returns fairseq's generator, with `SentenceCountSearch` where the number of sentences is forced.

        Limits of length hold for each sentence; `inference_step` sets the generator's own for every batch.
        """
        with one_sentence():
            # --eval-bleu-args holds only what was given
            given = {f.name: getattr(args, f.name) for f in fields(SentenceLimits) if hasattr(args, f.name)}
            limits = SentenceLimits(**given)
            needing = (f"--{name.replace('_', '-')}" for name in WHOLE_ONLY if getattr(args, name, None))
            self.whole_only = next(needing, None)
            positions = utils.resolve_max_positions(self.max_positions(), *[model.max_positions() for model in models])
            for dataset in self.datasets.values():
                self._check_whole(dataset, positions)
            generator = super().build_generator(models, args, *arguments, **options)
            if not isinstance(generator, SequenceGenerator):
                return generator
            if self._forced:
                if type(generator.search) is not BeamSearch or self.whole_only:
                    raise ValueError(
                        "the number of sentences is forced by beam search alone: leave out --sampling, "
                        "--diverse-beam-groups, --diversity-rate, --match-source-len, --constraints and "
                        "--prefix-size, or give --sentence-count free"
                    )
                generator.search = SentenceCountSearch(self.tgt_dict, self.target_separator, limits)
            if not isinstance(generator, SequenceGeneratorWithAlignment):
                leave_attention_out(generator)
            generator.sentence_limits = limits
            of_language_model = getattr(generator.lm_model, "longest_input", None)
            generator.max_len = min(generator.max_len, positions[1], of_language_model or positions[1])
            if limits.min_len >= generator.max_len:
                raise ValueError(
                    f"--min-len {limits.min_len} is not below the longest target, {generator.max_len:,} tokens: give "
                    "a smaller one"
                )
        return generator

    @property
    def _forced(self) -> bool:
        return bool(self.cfg.sentence_count == "forced")

    def inference_step(
        self,
        generator: SequenceGenerator | SequenceScorer,
        models: list[BaseFairseqModel],
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
    ) -> list[list[Hypothesis]]:
        """Translates a batch of documents.

        The first parts of all documents are searched together, then the second ones, and so on. A part whose
        translation reaches the longest target before its end is cut in two, and these are translated instead; a
        sentence that reaches it by itself stays as it is, with a warning.

        Returns:
            the hypotheses of each document, best first: as many as fairseq returns, or the best one of a document that
            was translated in parts.
        """
        given = {"prefix_tokens": prefix_tokens, "constraints": constraints}
        given_whole = any(words is not None for words in given.values())
        if not isinstance(generator, SequenceGenerator):
            return super().inference_step(generator, models, sample, **given)
        rows = sample["net_input"]["src_tokens"]
        numbers = sample["id"].tolist() if "id" in sample else [None] * len(rows)
        longest = utils.resolve_max_positions(self.max_positions(), *[model.max_positions() for model in models])[0]
        with one_sentence():
            waiting = [deque(self._parts(row, longest, number)) for row, number in zip(rows, numbers, strict=True)]
            if given_whole and any(len(parts) > 1 for parts in waiting):
                raise ValueError("prefixes and constraints need documents that the model takes whole: leave them out")
        may_cut = not self.cfg.no_split_documents and not given_whole
        done: list[list[tuple[Tensor, list[Hypothesis]]]] = [[] for _ in waiting]
        while any(waiting):
            some = [row for row, parts in enumerate(waiting) if parts]
            parts = [waiting[row].popleft() for row in some]
            lengths = [sentence_lengths(part, self.source_separator) for part in parts]
            found = self._search(generator, models, parts, lengths, given)
            for row, part, sentences, (hypotheses, complete) in zip(some, parts, lengths, found, strict=True):
                if not complete and may_cut and len(sentences) > 1:
                    logger.info(f"the translation of {self._name(part, numbers[row])} {HALVED}")
                    waiting[row].extendleft(reversed(cut(part, self.source_separator, halves(sentences))))
                    continue
                if not complete:
                    logger.warning(
                        f"the translation of {self._name(part, numbers[row])} reaches the longest target, "
                        f"{generator.max_len:,} tokens, and is cut there"
                    )
                done[row].append((part, hypotheses))
        return [parts[0][1] if len(parts) == 1 else [self._join(generator, parts)] for parts in done]

    def _search(
        self,
        generator: SequenceGenerator,
        models: list[BaseFairseqModel],
        parts: list[Tensor],
        lengths: list[list[int]],
        given: dict[str, Tensor | None],
    ) -> list[tuple[list[Hypothesis], bool]]:
        """Returns the hypotheses of every part, those that are complete first, and whether the first one is.

        Args:
            lengths: of the sentences of every part.
            given: to fairseq's `inference_step`.
        """
        tokens = data_utils.collate_tokens(parts, self.src_dict.pad())
        sample = {"net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(self.src_dict.pad()).sum(1)}}
        sources = pad_lengths(lengths)
        limits = generator.sentence_limits.document(sources)
        generator.max_len_a, generator.max_len_b = 0, int(limits.max())
        if self._forced:
            given = {**given, "constraints": sources.to(tokens.device)}
        else:
            limits = limits.max().expand_as(limits)  # fairseq has one limit for all
        found = super().inference_step(generator, models, sample, **given)
        results = []
        for hypotheses, sentences, limit in zip(found, lengths, limits.tolist(), strict=True):
            is_cut = [self._is_cut(generator, one["tokens"], len(sentences) - 1, limit) for one in hypotheses]
            order = sorted(range(len(hypotheses)), key=is_cut.__getitem__)
            results.append(([hypotheses[i] for i in order], not all(is_cut)))
        return results

    def _is_cut(self, generator: SequenceGenerator, tokens: Tensor, borders: int, limit: int) -> bool:
        """Whether a translation, with its end, would have gone on where the model has no more positions."""
        if self._forced and int(tokens.eq(self.target_separator).sum()) < borders:
            return True
        return bool(len(tokens) == generator.max_len <= limit)

    def _join(self, generator: SequenceGenerator, parts: list[tuple[Tensor, list[Hypothesis]]]) -> Hypothesis:
        best = [(part, hypotheses[0]) for part, hypotheses in parts]
        return join(best, self.target_separator, generator.normalize_scores, generator.len_penalty)


def _check_words(embedding: nn.Embedding, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    """Refuses the embeddings of a checkpoint whose dictionary has not as many words as the data's."""
    words, found = embedding.num_embeddings, state.get(f"{prefix}weight")
    if found is not None and len(found) != words:
        with one_sentence():
            raise ValueError(
                f"the {prefix.split('.')[0]}'s dictionary has {words:,} words, and the checkpoint was trained with "
                f"{len(found):,}: name the data of its training, whose dictionary has the separator if it was trained "
                "on documents"
            )
