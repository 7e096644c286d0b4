"""Random batches for training, made as fairseq-train makes them of a corpus."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from fairseq import utils
from fairseq.data import Dictionary, LanguagePairDataset, data_utils
from torch import Tensor

from .whole_settings import TrainingSettings

SPREAD = 0.65
"""Standard deviation of the logarithm of a source's words."""
DIFFERENCE = 0.2
"""The same of a target's words over its source's."""

Sample = dict[str, Any]
"""A batch of fairseq's: `net_input` with `src_tokens` (B, n), padded on the left, and `prev_output_tokens` (B, T), and
`target` (B, T), both padded on the right."""


@dataclass(frozen=True)
class Batches:
    """Those that a run trains on."""

    samples: list[Sample]

    @property
    def sentences(self) -> int:
        return sum(sample["nsentences"] for sample in self.samples)

    @property
    def source_tokens(self) -> int:
        """Without padding."""
        return sum(int(sample["net_input"]["src_lengths"].sum()) for sample in self.samples)

    @property
    def target_tokens(self) -> int:
        """Without padding: what fairseq-train's words per second count."""
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
        """The one with the most positions."""
        return max(self.samples, key=positions)


def positions(sample: Sample) -> int:
    """Of sources and targets, padding included."""
    return sample["net_input"]["src_tokens"].numel() + sample["target"].numel()


def wmt_like_words(settings: TrainingSettings, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Words of every source and of every target: log-normal, and the longer the source the longer the target."""
    generator = np.random.default_rng(seed)
    center = math.log(settings.mean_words) - SPREAD**2 / 2
    source = generator.normal(center, SPREAD, settings.sentences)
    target = source + generator.normal(-(DIFFERENCE**2) / 2, DIFFERENCE, settings.sentences)
    # fairseq skips what is too long for a batch
    longest = min(settings.longest_words, settings.max_tokens - 1)
    return tuple(np.exp(side).round().astype(np.int64).clip(1, longest) for side in (source, target))


def wmt_like(settings: TrainingSettings, words: Dictionary, seed: int, device: torch.device) -> Batches:
    """Some of the batches that fairseq-train makes of such sentences, from the shortest to the longest."""
    source, target = wmt_like_words(settings, seed)
    dataset = _dataset(source + 1, target + 1, words, seed)
    with data_utils.numpy_seed(seed):
        indices = dataset.ordered_indices()
    every = dataset.batch_by_size(indices, max_tokens=settings.max_tokens)
    count = min(settings.batches, len(every))
    chosen = [every[int((number + 0.5) * len(every) / count)] for number in range(count)]
    return _collated(dataset, chosen, device)


def equally_long(
    length: int, settings: TrainingSettings, words: Dictionary, seed: int, device: torch.device
) -> Batches:
    """One batch of sentences of `length` tokens."""
    sizes = np.full(settings.max_tokens // length, length)
    dataset = _dataset(sizes, sizes, words, seed)
    return _collated(dataset, [range(len(dataset))], device)


def _dataset(source: np.ndarray, target: np.ndarray, words: Dictionary, seed: int) -> LanguagePairDataset:
    """Random sentences of given sizes in tokens, their ends included."""
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
