"""The finished trainings, read from what the study left in its folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy
from sacrebleu.metrics import BLEU

from linformer_fairseq.cli.files import read_json
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.recipe import texts
from linformer_fairseq.recipe.evaluate import HYPOTHESES
from linformer_fairseq.recipe.scores import bleu_of_counts, middle, resampled, sentence_counts
from linformer_fairseq.recipe.settings import SCORES

from .trainings import Training

VALID = "valid"
ENTROPY = f"{VALID}/entropy.json"
"""In the folder of a model, with the translation whose checkpoint it is about."""


@dataclass(frozen=True)
class Subset:
    """A split that was translated: its sentences are the same for all models."""

    name: str
    lengths: numpy.ndarray
    """Of the sources, in subwords and their end symbol."""
    references: list[str]
    language: str

    @classmethod
    def read(cls, name: str, text: Path, source_lang: str, target_lang: str) -> "Subset":
        """From the folder of the prepared text."""
        lengths = [len(line.split()) + 1 for line in texts.read_lines(text / "bpe" / f"{name}.{source_lang}")]
        return cls(name, numpy.array(lengths), texts.read_lines(text / "raw" / f"{name}.{target_lang}"), target_lang)

    @cached_property
    def bleu(self) -> BLEU:
        return BLEU(trg_lang=self.language, force=True)

    def within(self, bucket: Bucket) -> numpy.ndarray:
        """Which sentences are in a bucket."""
        return numpy.array([length in bucket for length in self.lengths])


@dataclass(frozen=True)
class Result:
    """A finished training and its translation of a subset."""

    training: Training
    subset: Subset
    perplexity: float
    """Of the validation set."""
    entropy: dict[str, float]
    """Of its attention, by place."""
    counts: numpy.ndarray
    """Of each sentence what BLEU is made of: lengths of translation and reference, matches and n-grams."""

    @classmethod
    def read(cls, training: Training, subset: Subset) -> "Result | None":
        """None where the training, or its translation, is not finished."""
        folder = training.folder / subset.name
        if not ((folder / SCORES).exists() and (training.folder / ENTROPY).exists()):
            return None
        hypotheses = texts.read_lines(folder / HYPOTHESES)
        return cls(
            training,
            subset,
            read_json(folder / SCORES)["perplexity"],
            read_json(training.folder / ENTROPY),
            sentence_counts(subset.bleu, hypotheses, subset.references),
        )

    def bleu(self, chosen: numpy.ndarray | None = None) -> float:
        """Of all sentences, or of some of them."""
        counts = self.counts if chosen is None else self.counts[chosen]
        return bleu_of_counts(self.subset.bleu, counts.sum(0))

    def length_ratio(self, chosen: numpy.ndarray | None = None) -> float:
        """Words of the translations for each word of the references."""
        counts = self.counts if chosen is None else self.counts[chosen]
        return float(counts[:, 0].sum() / counts[:, 1].sum())


def gains(own: Sequence[Result], baseline: Sequence[Result], chosen: numpy.ndarray) -> list[float]:
    """How much better each is than the baseline's mean, in BLEU of some of the sentences."""
    mean = numpy.mean([result.bleu(chosen) for result in baseline])
    return [float(result.bleu(chosen) - mean) for result in own]


@dataclass(frozen=True)
class Difference:
    """How much better the mean over seeds is than the baseline's, in BLEU."""

    mean: float
    low: float
    high: float
    """The middle 95 % over resamples of the sentences."""


def difference(baseline: Sequence[Result], system: Sequence[Result]) -> Difference:
    """The paired bootstrap of Koehn (2004) for means over seeds: every resample of the sentences scores all seeds of
    both."""
    before, after = (
        numpy.mean([resampled(result.subset.bleu, result.counts) for result in results], axis=0)
        for results in (baseline, system)
    )
    mean = numpy.mean([result.bleu() for result in system]) - numpy.mean([result.bleu() for result in baseline])
    return Difference(float(mean), *middle(after - before))
