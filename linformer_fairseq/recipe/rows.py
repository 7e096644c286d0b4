"""The finished models of an output folder, read from what the commands left there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.files import read_json

from . import logs, scores, texts, train
from .evaluate import HYPOTHESES, TEST
from .settings import DONE, SCORES, Model, Settings


@dataclass(frozen=True)
class Row:
    """One finished model."""

    model: Model
    log: logs.TrainingLog
    scores: dict[str, Any]
    training: dict[str, Any]
    against_baseline: dict[str, float] | None
    """How its BLEU differs from the Transformer's (`scores.compare`); None for that one, or where it is missing."""

    def per_second(self) -> float | None:
        """Target tokens trained on in a second; None where the training was too short to be timed, or has not
        been timed to its end."""
        return self.log.tokens / self.log.seconds if self.log.seconds and self.log.tokens else None

    def per_update(self) -> float | None:
        return self.log.seconds / self.log.updates if self.log.seconds and self.log.updates else None

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        return {
            "model": self.model.name,
            "k": self.model.k or None,
            "attention": self.model.attention or None,
            "projection": self.model.projection or None,
            "parameters": self.log.parameters,
            **self.scores,
            "bleu_against_transformer": self.against_baseline,
            "training_seconds": self.log.seconds,
            "training_updates": self.log.updates,
            "training_tokens": None if self.log.tokens is None else round(self.log.tokens),
            "training_seconds_per_update": self.per_update(),
            "training_tokens_per_second": self.per_second(),
            "validation_curve": self.log.curve,
            **{name: self.training[name] for name in ("jobs", "processes", "command")},
            # the scores have these too, of the translation
            **{f"training_{name}": self.training[name] for name in ("precision", "threads", "machine")},
        }


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
        rows.append(Row(model, log, read_json(folder / TEST / SCORES), read_json(folder / DONE), compared))
    return rows


def hypotheses(model: Model, out: Path) -> list[str]:
    """A finished model's translation of the test set, as plain text."""
    return texts.read_lines(out / "models" / model.slug / TEST / HYPOTHESES)
