"""The finished models of an output folder, read from what the commands left there."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.files import read_json

from . import logs, scores, texts, train
from .evaluate import FOLDER as TEST
from .evaluate import HYPOTHESES, SCORES
from .settings import Model, Settings


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
        """Target tokens trained on in a second; None where the training was too short to be timed."""
        return self.log.tokens / self.log.seconds if self.log.seconds else None

    def per_update(self) -> float | None:
        return self.log.seconds / self.log.updates if self.log.seconds and self.log.updates else None

    def facts(self) -> dict[str, Any]:
        """The row as results.json has it."""
        return {
            "model": self.model.name,
            "k": self.model.k or None,
            "attention": self.model.attention or None,
            "parameters": self.log.parameters,
            **self.scores,
            "bleu_against_transformer": self.against_baseline,
            "training_seconds": self.log.seconds,
            "training_updates": self.log.updates,
            "training_tokens": round(self.log.tokens),
            "training_seconds_per_update": self.per_update(),
            "training_tokens_per_second": self.per_second(),
            "validation_curve": self.log.curve,
            **{name: self.training[name] for name in ("jobs", "processes", "precision", "command")},
            "training_threads": self.training["threads"],
            "training_machine": self.training["machine"],
        }


def finished_rows(settings: Settings, out: Path) -> list[Row]:
    """The models that have been trained and translated with, the Transformer first, then by attention and k."""
    references = texts.read_lines(out / "raw" / f"test.{settings.text.target_lang}")
    baseline = hypotheses(Model(), out)
    rows = []
    for done in sorted((out / "models").glob(f"*/{train.DONE}")):
        training = read_json(done)
        model = Model(training["k"], training["attention"])
        found = hypotheses(model, out)
        if found is None:
            continue
        compared = None
        if model.k and baseline is not None:
            compared = scores.compare(baseline, found, references, settings.text.target_lang)
        log = logs.read_training((done.parent / train.LOG).read_text(encoding="utf-8"))
        rows.append(Row(model, log, read_json(done.parent / TEST / SCORES), training, compared))
    return sorted(rows, key=lambda row: (row.model.attention, row.model.k))


def hypotheses(model: Model, out: Path) -> list[str] | None:
    """A model's translation of the test set, as plain text; None where there is none yet."""
    path = out / "models" / model.slug / TEST / HYPOTHESES
    return texts.read_lines(path) if path.exists() else None
