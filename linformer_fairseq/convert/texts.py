"""The texts that models are compared on: sentences of a data set, or random tokens."""

from collections.abc import Iterator, Sequence

import torch
from fairseq.data import data_utils
from fairseq.models import BaseFairseqModel, FairseqEncoderDecoderModel
from torch import Tensor

from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.modules import CausalTwoLevelAttention, ProjectedAttention, TwoLevelAttention
from linformer_fairseq.trained import Split, Trained

from .compare import Sample

BATCH_TOKENS = 4096
LONGEST = 2048
"""The longest random text, unless lengths are given: full attention to more takes much memory."""
TARGET = 32
"""Tokens of the targets of random sources of all lengths."""
SHORT_SOURCE = 8
"""Tokens of the sources of random targets of all positions, at most."""
PAD, EOS, FIRST_WORD = 1, 2, 4
"""As fairseq numbers them in every dictionary."""


def longest_texts(model: BaseFairseqModel) -> tuple[int | None, int]:
    """Returns the longest source that a model takes, None for a language model, and the longest target."""
    if isinstance(model, FairseqEncoderDecoderModel):
        source, target = model.max_positions()
        return int(source), int(target)
    return None, int(model.max_positions())


def exact_lengths(model: BaseFairseqModel) -> tuple[int | None, int | None]:
    """Returns the length up to which all sources, and all targets, get full attention by construction.

    None where another kind than two levels is there, or no source.
    """
    longest_source, longest_target = longest_texts(model)
    sources: list[int | None] = [longest_source]
    targets: list[int | None] = [longest_target]
    for module in model.modules():
        if isinstance(module, TwoLevelAttention):
            _, last, _ = next(module.rule.ranges(module.max_positions))
            sources.append(last)
        elif isinstance(module, CausalTwoLevelAttention):
            targets.append(module.exact)
        elif isinstance(module, ProjectedAttention):
            (targets if module.causal else sources).append(None)
    source, target = (None if None in found else min(x for x in found if x is not None) for found in (sources, targets))
    return source, target


def default_ends(longest: int, exact: int | None) -> tuple[int, ...]:
    """Returns powers of two from 8 to `longest`, `longest` itself, and the last length with full attention."""
    ends = {8 << power for power in range(longest.bit_length()) if 8 << power < longest} | {longest}
    if exact is not None and exact < longest:
        ends.add(exact)
    return tuple(sorted(end for end in ends if end))


class SplitTexts:
    """The sentences of a split of a data set."""

    def __init__(self, trained: Trained, split: Split, source_lengths: bool) -> None:
        self.split, self.number = split, len(split.indices)
        self.source_lengths = source_lengths
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
            yield Sample(sample["net_input"], sample["target"], is_token, lengths if self.source_lengths else None)


class RandomTexts:
    """Random words: sources of some lengths with short targets, and targets, or texts, of the longest length.

    Args:
        words: of the source and of the target.
        sources: the lengths; None for a language model.
        longest: the last position of targets and texts.
        texts: of each length.
    """

    def __init__(
        self, words: tuple[int, int], sources: Sequence[int] | None, longest: int, texts: int, seed: int
    ) -> None:
        self.words, self.sources, self.longest, self.texts, self.seed = words, sources, longest, texts, seed
        self.number = texts * (1 + len(sources or ()))

    def __iter__(self) -> Iterator[Sample]:
        generator = torch.Generator().manual_seed(self.seed)
        for length in self.sources or ():
            for _ in range(self.texts):
                yield self._sample(generator, length, min(TARGET, self.longest), positions=False)
        for _ in range(self.texts):
            source = None if self.sources is None else min(SHORT_SOURCE, max(self.sources, default=SHORT_SOURCE))
            yield self._sample(generator, source, self.longest, positions=True)

    def _sample(self, generator: torch.Generator, source: int | None, target: int, positions: bool) -> Sample:
        words = _random_text(generator, self.words[1], target)
        previous = torch.cat([words.new_tensor([EOS]), words[:-1]])[None]
        lengths = None
        if source is None:
            inputs = {"src_tokens": previous, "src_lengths": torch.tensor([target])}
        else:
            tokens = _random_text(generator, self.words[0], source)[None]
            inputs = {"src_tokens": tokens, "src_lengths": torch.tensor([source]), "prev_output_tokens": previous}
            lengths = None if positions else [source]
        return Sample(inputs, words[None], torch.ones(1, target, dtype=torch.bool), lengths, positions)


def _random_text(generator: torch.Generator, words: int, length: int) -> Tensor:
    """Returns random words, the last of them the end of the text."""
    text = torch.randint(min(FIRST_WORD, words - 1), words, (length,), generator=generator)
    text[-1] = EOS
    return text


def exactly(lengths: Sequence[int]) -> list[Bucket]:
    """Returns a bucket for each of these lengths."""
    return [Bucket(length, length) for length in lengths]


