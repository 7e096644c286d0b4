"""The texts that models are compared on: sentences of a data set, or random tokens."""

from collections.abc import Iterator, Sequence

import torch
from fairseq.data import data_utils
from torch import Tensor

from linformer_fairseq.trained import Split, Trained

from .compare import Sample

BATCH_TOKENS = 4096
SHORT_TARGET = 32
"""Tokens of the targets of random sources, at most."""
SHORT_SOURCE = 8
"""Tokens of the sources of long random targets, at most."""
BOS, EOS, FIRST_WORD = 0, 2, 4
"""As fairseq numbers them in every dictionary."""


class SplitTexts:
    """The sentences of a split of a data set; of a masked language model's, whose targets are padding elsewhere, the
    masked tokens."""

    def __init__(self, trained: Trained, split: Split, has_sources: bool) -> None:
        self.split, self.number, self.has_sources = split, len(split.indices), has_sources
        self.dictionaries = trained.task.source_dictionary, trained.task.target_dictionary

    def __iter__(self) -> Iterator[Sample]:
        sentences = self.split.sentences
        order = sorted(self.split.indices, key=sentences.num_tokens)
        most = max(BATCH_TOKENS, sentences.num_tokens(order[-1]))
        source, target = self.dictionaries
        for indices in data_utils.batch_by_size(order, sentences.num_tokens, max_tokens=most):
            sample = sentences.collater([sentences[index] for index in indices])
            lengths = (sample["net_input"]["src_tokens"] != source.pad()).sum(1).tolist()
            is_token = sample["target"] != target.pad()
            yield Sample(sample["net_input"], sample["target"], is_token, lengths if self.has_sources else None)


class RandomTexts:
    """Random words: sources of some lengths with short targets, then targets, or texts, of the longest length.

    Short ones are no longer than what gets full attention, so that they alone move no outputs.

    Args:
        words: of the source and of the target.
        sources: the lengths; empty for a language model.
        longest: the tokens of long targets.
        exact: the tokens of a source and of a target that get full attention; None or 0 where there are none.
        texts: of each length.
    """

    def __init__(
        self,
        words: tuple[int, int],
        sources: Sequence[int],
        longest: int,
        exact: tuple[int | None, int | None],
        texts: int,
        seed: int,
    ) -> None:
        self.words, self.sources, self.longest, self.texts, self.seed = words, sources, longest, texts, seed
        self.short_source = min(SHORT_SOURCE, exact[0] or SHORT_SOURCE, max(sources, default=SHORT_SOURCE))
        self.short_target = min(SHORT_TARGET, exact[1] or SHORT_TARGET, longest)
        self.number = texts * (1 + len(sources))

    def __iter__(self) -> Iterator[Sample]:
        generator = torch.Generator().manual_seed(self.seed)
        for length in self.sources:
            for _ in range(self.texts):
                yield self._sample(generator, length, self.short_target, counts_positions=False)
        for _ in range(self.texts):
            yield self._sample(generator, self.short_source, self.longest, counts_positions=True)

    def _sample(self, generator: torch.Generator, source: int, target: int, counts_positions: bool) -> Sample:
        words = _random_text(generator, self.words[1], target)
        previous = torch.cat([words.new_tensor([EOS]), words[:-1]])[None]
        if self.sources:
            tokens = _random_text(generator, self.words[0], source)[None]
            inputs = {"src_tokens": tokens, "src_lengths": torch.tensor([source]), "prev_output_tokens": previous}
        else:
            inputs = {"src_tokens": previous, "src_lengths": torch.tensor([target])}
        lengths = None if counts_positions else [source]
        return Sample(inputs, words[None], torch.ones(1, target, dtype=torch.bool), lengths, counts_positions)


class RandomEncoderTexts:
    """Random words for an encoder alone, which predicts every one of them.

    Args:
        words: the number of words.
        lengths: of the texts, in tokens.
        texts: of each length.
    """

    def __init__(self, words: int, lengths: Sequence[int], texts: int, seed: int) -> None:
        self.words, self.lengths, self.texts, self.seed = words, lengths, texts, seed
        self.number = texts * len(lengths)

    def __iter__(self) -> Iterator[Sample]:
        generator = torch.Generator().manual_seed(self.seed)
        for length in self.lengths:
            for _ in range(self.texts):
                text = _random_text(generator, self.words, length)
                text[0] = BOS
                inputs = {"src_tokens": text[None], "src_lengths": torch.tensor([length])}
                is_token = torch.ones(1, length, dtype=torch.bool)
                yield Sample(inputs, text[None], is_token, [length], counts_positions=False)


def _random_text(generator: torch.Generator, words: int, length: int) -> Tensor:
    """Returns random words, the last of them the end of the text."""
    text = torch.randint(min(FIRST_WORD, words - 1), words, (length,), generator=generator)
    text[-1] = EOS
    return text
