"""The finished models of an output folder, read from what the commands left there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.files import read_json

from . import logs, scores, texts, train
from .evaluate import HYPOTHESES, TEST
from .settings import DONE, SCORES, Model, Settings

OF_BOTH = ("precision", "threads", "machine")
"""What train.json and scores.json both say: results.json has the first with `training_` before its name."""


@dataclass(frozen=True)
class Row:
    """A finished model and what is known of it."""

    model: Model
    facts: dict[str, Any]
    """By the names of results.json."""

    def __getitem__(self, name: str) -> Any:
        """The fact of that name; None where the command that finished this model did not know it yet."""
        return self.facts.get(name)


def make_row(
    model: Model,
    log: logs.TrainingLog,
    scored: dict[str, Any],
    training: dict[str, Any],
    against_baseline: dict[str, float] | None,
) -> Row:
    """The row of a model, from its training's log, its scores.json and its train.json.

    Args:
        against_baseline: how its BLEU differs from the Transformer's (`scores.compare`); None for the Transformer, or
            where that is missing.
    """
    timed = log.seconds and log.updates and log.tokens  # a short training takes 0 s, in fairseq's whole seconds
    facts = {
        "model": model.name,
        "parameters": log.parameters,
        **scored,
        "bleu_against_transformer": against_baseline,
        "training_seconds": log.seconds,
        "training_updates": log.updates,
        "training_tokens": None if log.tokens is None else round(log.tokens),
        "training_seconds_per_update": log.seconds / log.updates if timed else None,
        "training_tokens_per_second": log.tokens / log.seconds if timed else None,
        "validation_curve": log.curve,
        **{f"training_{name}" if name in OF_BOTH else name: value for name, value in training.items()},
        "k": model.k or None,
        "attention": model.attention or None,
        "projection": model.projection or None,
    }
    return Row(model, facts)


def finished_models(out: Path) -> list[Model]:
    """The models that have been trained and translated with, the Transformer first, then by attention, kind and k."""
    models = []
    for done in (out / "models").glob(f"*/{DONE}"):
        training = read_json(done)
        if (done.parent / TEST / SCORES).exists():
            models.append(Model(training["k"], training["attention"], training.get("projection", "")))
    return sorted(models, key=lambda model: (model.attention, model.projection, model.k))


def finished_rows(settings: Settings, out: Path) -> list[Row]:
    """All that is known of the finished models, in their order."""
    references = texts.read_lines(out / "raw" / f"test.{settings.text.target_lang}")
    models = finished_models(out)
    translations = {model: hypotheses(model, out) for model in models}
    rows = []
    for model in models:
        folder = out / "models" / model.slug
        compared = None
        if model.k and Model() in translations:
            compared = scores.compare(translations[Model()], translations[model], references, settings.text.target_lang)
        log = logs.read_training((folder / train.LOG).read_text(encoding="utf-8"))
        rows.append(make_row(model, log, read_json(folder / TEST / SCORES), read_json(folder / DONE), compared))
    return rows


def hypotheses(model: Model, out: Path) -> list[str]:
    """A finished model's translation of the test set, as plain text."""
    return texts.read_lines(out / "models" / model.slug / TEST / HYPOTHESES)
