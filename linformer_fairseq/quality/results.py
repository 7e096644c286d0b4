"""What the study found, read from the folders of its finished trainings: the content of results.json."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy
from sacrebleu.metrics import BLEU

from linformer_fairseq.cli.files import read_json
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.length_buckets import Bucket, buckets
from linformer_fairseq.recipe import texts
from linformer_fairseq.recipe.evaluate import HYPOTHESES
from linformer_fairseq.recipe.scores import bleu_of_counts, difference_of_means, sentence_counts
from linformer_fairseq.recipe.settings import SCORES

from .arguments import Study
from .variants import BASELINE, Training, described

VALID = "valid"
ENTROPY = f"{VALID}/entropy.json"
"""Stored beside the validation translation, as it is of the same checkpoint."""
ALL = slice(None)


@dataclass(frozen=True)
class Subset:
    """A split that every model translates."""

    name: str
    lengths: numpy.ndarray
    """Subwords of each source, its end symbol included."""
    references: list[str]
    language: str
    """Of the references."""

    @classmethod
    def read(cls, name: str, text: Path, source: str, target: str) -> "Subset":
        """Returns a split of the prepared text in a folder, from the language `source` to `target`."""
        lengths = [len(line.split()) + 1 for line in texts.read_lines(text / "bpe" / f"{name}.{source}")]
        return cls(name, numpy.array(lengths), texts.read_lines(text / "raw" / f"{name}.{target}"), target)

    @cached_property
    def bleu(self) -> BLEU:
        return BLEU(trg_lang=self.language, force=True)

    def within(self, bucket: Bucket) -> numpy.ndarray:
        """Returns which sentences are in a bucket, (sentences,)."""
        return numpy.array([length in bucket for length in self.lengths])


@dataclass(frozen=True)
class Result:
    """A finished training and its translation of a subset."""

    training: Training
    subset: Subset
    perplexity: float
    """On the validation set."""
    entropy: dict[str, float]
    """Of the attention maps, by place."""
    counts: numpy.ndarray
    """What BLEU is computed from, a row for each sentence (`recipe.scores.sentence_counts`)."""

    @classmethod
    def read(cls, training: Training, subset: Subset) -> "Result | None":
        """Returns the result of a training; None where it, or its translation, is not finished."""
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

    def bleu(self, chosen: numpy.ndarray | slice = ALL) -> float:
        """Returns BLEU of all sentences, or of the chosen ones, (sentences,) of booleans."""
        return bleu_of_counts(self.subset.bleu, self.counts[chosen].sum(0))

    def length_ratio(self, chosen: numpy.ndarray | slice = ALL) -> float:
        """Returns how many words the translations have for each word of the references."""
        words, wanted = self.counts[chosen, :2].sum(0)
        return float(words / wanted)


def difference(baseline: Sequence[Result], system: Sequence[Result]) -> dict[str, float]:
    """Returns how much higher the mean BLEU over a system's seeds is than over the baseline's, as
    `recipe.scores.difference_of_means` does."""
    before, after = ([own.counts for own in results] for results in (baseline, system))
    return difference_of_means(partial(bleu_of_counts, baseline[0].subset.bleu), before, after)


def by_k(k: int) -> list[Bucket]:
    """Returns three buckets of source lengths: up to k tokens, up to 2k, and more."""
    return buckets((k, 2 * k))


def findings(study: Study, results: dict[str, list[Result]]) -> dict[str, Any]:
    """Returns all that the report says, as results.json holds it.

    Args:
        results: the finished trainings of each subset.
    """
    settings = study.settings
    text = settings.text
    return {
        "command": study.command,
        "machine": describe_machine(),
        "text": f"{text.dataset.name}, {text.source_lang} to {text.target_lang}",
        "epochs": settings.training.epochs,
        "precision": settings.training.precision,
        "average": settings.translation.average,
        "beam": settings.translation.beam,
        "variants": {
            name: asdict(described(name))
            for name in dict.fromkeys(training.variant.name for training in study.trainings)
        },
        "results": [_row(result, study.ks) for own in results.values() for result in own],
        "differences": [row for own in results.values() for row in _differences(own)],
    }


def _row(result: Result, ks: list[int]) -> dict[str, Any]:
    return {
        "variant": result.training.variant.name,
        "k": result.training.model.k or None,
        "seed": result.training.seed,
        "subset": result.subset.name,
        "perplexity": result.perplexity,
        "bleu": result.bleu(),
        "length_ratio": result.length_ratio(),
        "entropy": result.entropy,
        "by_length": [
            {
                "shortest": bucket.shortest,
                "longest": bucket.longest,
                "sentences": int(chosen.sum()),
                "bleu": result.bleu(chosen),
                "length_ratio": result.length_ratio(chosen),
            }
            for k in ks
            for bucket in by_k(k)
            if (chosen := result.subset.within(bucket)).any()
        ],
    }


def _differences(results: list[Result]) -> list[dict[str, Any]]:
    models: dict[tuple[str, int], list[Result]] = {}
    for result in results:
        models.setdefault((result.training.variant.name, result.training.model.k), []).append(result)
    baseline = models.pop((BASELINE, 0), None)
    return [
        {"variant": variant, "k": k, "subset": own[0].subset.name, **difference(baseline, own)}
        for (variant, k), own in models.items()
        if baseline
    ]
