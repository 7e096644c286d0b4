"""The finished models of an output folder, read from what the commands left there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.files import read_json

from . import logs, scores, texts
from .course import LOG
from .evaluate import HYPOTHESES, TEST
from .settings import DONE, SCORES, Model, Settings

IN_BOTH = ("precision", "threads", "machine")
"""Names in both train.json and scores.json; results.json gives train.json's the prefix `training_`."""


@dataclass(frozen=True)
class Row:
    """A finished model and what is known of it."""

    model: Model
    facts: dict[str, Any]
    """All facts by their names in results.json."""

    def __getitem__(self, name: str) -> Any:
        """Returns the fact of that name; None where the command that finished this model did not know it yet."""
        return self.facts.get(name)


def finished_models(out: Path) -> list[Model]:
    """Returns the models that have been trained and translated with, the Transformer first, then by attention, kind and
    k."""
    models = []
    for done in (out / "models").glob(f"*/{DONE}"):
        training = read_json(done)
        if (done.parent / TEST / SCORES).exists():
            models.append(Model(training["k"], training["attention"], training.get("projection", "")))
    return sorted(models, key=lambda model: (model.attention, model.projection, model.k))


def finished_rows(settings: Settings, out: Path) -> list[Row]:
    """Returns all that is known of the finished models, in their order."""
    references = texts.read_lines(out / "raw" / f"test.{settings.text.target_lang}")
    translations = {model: hypotheses(model, out) for model in finished_models(out)}
    baseline = translations.get(Model())
    rows = []
    for model, translation in translations.items():
        compared = None
        if model.k and baseline:
            compared = scores.compare(baseline, translation, references, settings.text.target_lang)
        rows.append(Row(model, _facts(model, out / "models" / model.slug, compared)))
    return rows


def _facts(model: Model, folder: Path, compared: dict[str, float] | None) -> dict[str, Any]:
    log = logs.read_training((folder / LOG).read_text(encoding="utf-8"))
    training = read_json(folder / DONE)
    timed = log.seconds and log.updates and log.tokens  # a short training takes 0 s, in fairseq's whole seconds
    return {
        "model": model.name,
        "parameters": log.parameters,
        **read_json(folder / TEST / SCORES),
        "bleu_against_transformer": compared,
        "training_seconds": log.seconds,
        "training_updates": log.updates,
        "training_tokens": None if log.tokens is None else round(log.tokens),
        "training_seconds_per_update": log.seconds / log.updates if timed else None,
        "training_tokens_per_second": log.tokens / log.seconds if timed else None,
        "validation_curve": log.curve,
        **{f"training_{name}" if name in IN_BOTH else name: value for name, value in training.items()},
        "k": model.k or None,
        "attention": model.attention or None,
        "projection": model.projection or None,
    }


def hypotheses(model: Model, out: Path) -> list[str]:
    """Returns a finished model's translation of the test set, as plain text."""
    return texts.read_lines(out / "models" / model.slug / TEST / HYPOTHESES)
