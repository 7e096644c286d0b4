"""The finished trainings, read from what the study left in its folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy
from sacrebleu.metrics import BLEU

from linformer_fairseq.cli.files import read_json
from linformer_fairseq.lengths import Bucket
from linformer_fairseq.recipe import logs, texts
from linformer_fairseq.recipe.evaluate import HYPOTHESES, SCORES
from linformer_fairseq.recipe.scores import bleu_of_counts, sentence_counts
from linformer_fairseq.recipe.train import LOG

from .trainings import Training

ENTROPY = "entropy.json"
"""In the folder of a model."""


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
    seconds: float | None
    """Of training; None where a killed training has lost them."""
    counts: numpy.ndarray
    """Of each sentence what BLEU is made of: lengths of translation and reference, matches and n-grams."""

    @classmethod
    def read(cls, training: Training, subset: Subset) -> "Result | None":
        """None where the training, or its translation, is not finished."""
        folder = training.folder / subset.name
        if not ((folder / SCORES).exists() and (training.folder / ENTROPY).exists()):
            return None
        hypotheses = texts.read_lines(folder / HYPOTHESES)
        log = logs.read_training((training.folder / LOG).read_text(encoding="utf-8"))
        return cls(
            training,
            subset,
            read_json(folder / SCORES)["perplexity"],
            read_json(training.folder / ENTROPY),
            log.seconds,
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


@dataclass(frozen=True)
class Difference:
    """How much better the mean over seeds is than the baseline's, in BLEU."""

    mean: float
    low: float
    high: float
    """The middle 95 % over resamples of the sentences."""

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


def difference(
    baseline: Sequence[Result], system: Sequence[Result], samples: int = 1000, seed: int = 12345
) -> Difference:
    """The paired bootstrap of Koehn (2004) for means over seeds: every resample of the sentences scores all seeds of
    both."""
    bleu = baseline[0].subset.bleu
    draws = numpy.random.default_rng(seed).choice(len(baseline[0].counts), size=(samples, len(baseline[0].counts)))

    def means(results: Sequence[Result]) -> numpy.ndarray:
        scores = [[bleu_of_counts(bleu, result.counts[draw].sum(0)) for draw in draws] for result in results]
        return numpy.mean(scores, axis=0)

    found = numpy.sort(means(system) - means(baseline))
    mean = numpy.mean([result.bleu() for result in system]) - numpy.mean([result.bleu() for result in baseline])
    cut = samples // 40
    return Difference(float(mean), float(found[cut]), float(found[-1 - cut]))
