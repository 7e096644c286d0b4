"""Translations whose quality is known."""

import numpy

from linformer_fairseq.quality.results import Result, Subset
from linformer_fairseq.quality.variants import VARIANTS, Training
from linformer_fairseq.recipe.scores import sentence_counts
from linformer_fairseq.recipe.settings import Model

WORDS = ["a", "house", "stands", "near", "the", "old", "river", "and", "two", "men", "walk", "by", "with", "dogs"]


def sentences(seed: int, count: int = 60) -> list[str]:
    generator = numpy.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=generator.integers(4, 15))) for _ in range(count)]


REFERENCES = sentences(1)
LENGTHS = numpy.array([len(line.split()) + 1 for line in REFERENCES])
SUBSET = Subset("valid", LENGTHS, REFERENCES, "en")


def worse(lines: list[str], share: float, seed: int) -> list[str]:
    """Returns the lines with some words replaced."""
    generator = numpy.random.default_rng(seed)
    return [" ".join(w if generator.random() > share else "x" for w in line.split()) for line in lines]


def result(hypotheses: list[str], seed: int = 1) -> Result:
    """Returns the result of a Transformer that translates so."""
    training = Training(VARIANTS["transformer"], Model(), seed, None, None)
    return Result(training, SUBSET, 1.0, {}, sentence_counts(SUBSET.bleu, hypotheses, REFERENCES))
