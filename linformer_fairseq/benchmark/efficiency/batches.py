"""Random batches for training, made as fairseq-train makes them of a corpus."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from torch import Tensor

SENTENCES = 20_000
"""Sentences of the corpus that batches are taken from."""
MEAN_WORDS = 29.0
LONGEST_WORDS = 250
SPREAD = 0.65
"""Standard deviation of the logarithm of a source's words."""
DIFFERENCE = 0.2
"""Standard deviation of the logarithm of a target's words over its source's."""

Sample = dict[str, Any]
"""A batch as fairseq makes it: `net_input` with `src_tokens` (B, n), padded on the left, and `prev_output_tokens`
(B, T), and `target` (B, T), both padded on the right."""


@dataclass(frozen=True)
class Batches:
    """The batches that a run trains on."""

    samples: list[Sample]

    @property
    def sentences(self) -> int:
        return sum(sample["nsentences"] for sample in self.samples)

    @property
    def source_tokens(self) -> int:
        """All source tokens, without padding."""
        return sum(int(sample["net_input"]["src_lengths"].sum()) for sample in self.samples)

    @property
    def target_tokens(self) -> int:
        """All target tokens, without padding, as fairseq-train's words per second count them."""
        return sum(sample["ntokens"] for sample in self.samples)

    @property
    def padding(self) -> float:
        """The share of padded positions."""
        return 1 - (self.source_tokens + self.target_tokens) / sum(map(positions, self.samples))

    @property
    def longest(self) -> int:
        """Tokens of the longest sentence."""
        return max(x.size(1) for sample in self.samples for x in (sample["net_input"]["src_tokens"], sample["target"]))

    @property
    def largest(self) -> Sample:
        """The batch with the most positions."""
        return max(self.samples, key=positions)


def positions(sample: Sample) -> int:
    """Returns the positions of sources and targets, padding included."""
    return sample["net_input"]["src_tokens"].numel() + sample["target"].numel()


def wmt_like_words(max_tokens: int, seed: int, sentences: int = SENTENCES) -> tuple[np.ndarray, np.ndarray]:
    """Returns the words of every source and of every target, log-normal: the longer the source, the longer the target.

    Args:
        max_tokens: the longest sentence, with its end.
    """
    generator = np.random.default_rng(seed)
    center = math.log(MEAN_WORDS) - SPREAD**2 / 2
    source = generator.normal(center, SPREAD, sentences)
    target = source + generator.normal(-(DIFFERENCE**2) / 2, DIFFERENCE, sentences)
    # fairseq skips what is too long for a batch
    longest = min(LONGEST_WORDS, max_tokens - 1)
    source, target = (np.exp(side).round().astype(np.int64).clip(1, longest) for side in (source, target))
    return source, target


def wmt_like(
    max_tokens: int, count: int, words: Dictionary, seed: int, device: torch.device, sentences: int = SENTENCES
) -> Batches:
    """Returns `count` of the batches that fairseq-train makes of such sentences, from the shortest to the longest."""
    source, target = wmt_like_words(max_tokens, seed, sentences)
    dataset = _dataset(source + 1, target + 1, words, seed)
    with data_utils.numpy_seed(seed):
        indices = dataset.ordered_indices()
    every = dataset.batch_by_size(indices, max_tokens=max_tokens)
    count = min(count, len(every))
    chosen = [every[int((number + 0.5) * len(every) / count)] for number in range(count)]
    return _collated(dataset, chosen, device)


def equally_long(length: int, max_tokens: int, words: Dictionary, seed: int, device: torch.device) -> Batches:
    """Returns one batch of sentences of `length` tokens."""
    sizes = np.full(max_tokens // length, length)
    dataset = _dataset(sizes, sizes, words, seed)
    return _collated(dataset, [range(len(dataset))], device)


def _dataset(source: np.ndarray, target: np.ndarray, words: Dictionary, seed: int) -> LanguagePairDataset:
    """Returns random sentences of given sizes in tokens, their ends included."""
    generator = torch.Generator().manual_seed(seed)

    def sentences(sizes: np.ndarray) -> list[Tensor]:
        tokens = torch.randint(words.nspecial, len(words), (int(sizes.sum()),), generator=generator)
        made = list(tokens.split(sizes.tolist()))
        for sentence in made:
            sentence[-1] = words.eos()
        return made

    return LanguagePairDataset(sentences(source), source, words, sentences(target), target, words)


def _collated(dataset: LanguagePairDataset, batches: list[Any], device: torch.device) -> Batches:
    samples = [dataset.collater([dataset[i] for i in batch]) for batch in batches]
    return Batches([utils.apply_to_sample(lambda x: x.to(device), sample) for sample in samples])
