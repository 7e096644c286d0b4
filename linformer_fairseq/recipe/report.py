"""Tables and plots of all models that an output folder holds, read from what the commands left there."""

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tabulate import tabulate

from linformer_fairseq.cli.files import read_json, write_json, write_text

from . import logs, plots, train
from .evaluate import FOLDER as TEST
from .prepare import corpus_facts
from .settings import Model, Settings

PERPLEXITY_PLOT = "perplexity.png"
COMPARISON_PLOT = "comparison.png"


@dataclass(frozen=True)
class Row:
    """One finished model."""

    model: Model
    log: logs.TrainingLog
    scores: dict[str, Any]
    training: dict[str, Any]

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
            "training_seconds": self.log.seconds,
            "training_updates": self.log.updates,
            "training_tokens": round(self.log.tokens),
            "training_seconds_per_update": self.per_update(),
            "training_tokens_per_second": self.per_second(),
            "validation_curve": self.log.curve,
            "jobs": self.training["jobs"],
            "machine": self.training["machine"],
            "command": self.training["command"],
        }


def finished_rows(out: Path) -> list[Row]:
    """The models that have been trained and translated with, the Transformer first, then by attention and k."""
    rows = []
    for done in sorted((out / "models").glob(f"*/{train.DONE}")):
        scores = done.parent / TEST / "scores.json"
        if scores.exists():
            training = read_json(done)
            log = logs.read_training((done.parent / train.LOG).read_text(encoding="utf-8"))
            rows.append(Row(Model(training["k"], training["attention"]), log, read_json(scores), training))
    return sorted(rows, key=lambda row: (row.model.attention, row.model.k))


def write_report(settings: Settings, out: Path) -> None:
    """Write results.json, the plots and report.md anew."""
    rows = finished_rows(out)
    facts = corpus_facts(out)
    write_json(
        out / "results.json",
        {"settings": dataclasses.asdict(settings), "corpus": facts, "models": [row.facts() for row in rows]},
    )
    plots.perplexity(rows, out / PERPLEXITY_PLOT)
    plots.comparison(rows, out / COMPARISON_PLOT)
    write_text(out / "report.md", report_text(settings, rows, facts))


def report_text(settings: Settings, rows: list[Row], facts: dict[str, int | float]) -> str:
    """The report as Markdown."""
    machines = list(dict.fromkeys(row.training["machine"] for row in rows))
    signatures = list(dict.fromkeys(row.scores["signature"] for row in rows))
    compound_signatures = list(dict.fromkeys(row.scores["compound_signature"] for row in rows))
    direction = f"{settings.source_lang}-{settings.target_lang}"
    parts = [
        f"# Transformer and Linformer, {direction}",
        _corpus_text(settings, facts),
        "## Model performance",
        _table(
            ["Model", "PPL (dev)", "BLEU", "BLEU (compound-split)", "Parameters"],
            [
                [
                    row.model.name,
                    f"{row.scores['perplexity']:.2f}",
                    f"{row.scores['bleu']:.2f}",
                    f"{row.scores['compound_bleu']:.2f}",
                    f"{row.log.parameters:,}",
                ]
                for row in rows
            ],
        ),
        f"BLEU is sacreBLEU on the plain text of all {facts['test']:,} test sentences "
        f"(`{'`, `'.join(signatures)}`); BLEU (compound-split) is on Moses tokens cut at their hyphens, as "
        f"Vaswani et al. (2017) report it (`{'`, `'.join(compound_signatures)}`). PPL is per subword, of the "
        "checkpoint that translates: the one with the lowest validation loss.",
        "## Training time",
        _table(
            ["Model", "Seconds", "Updates", "Milliseconds an update", "Tokens a second"],
            [
                [
                    row.model.name,
                    f"{row.log.seconds:,.0f}",
                    f"{row.log.updates:,}",
                    _or_dash(1000 * row.per_update() if row.per_update() else None, ".0f"),
                    _or_dash(row.per_second(), ",.0f"),
                ]
                for row in rows
            ],
        ),
        "Time spent in updates, without validation, saving and starting, as fairseq-train logs it (whole seconds "
        f"an epoch); tokens are target subwords. {_jobs_text(rows)}",
        "## Inference time",
        _table(
            ["Model", "Seconds", "Sentences a second", "Tokens a second"],
            [
                [
                    row.model.name,
                    f"{row.scores['seconds']:,.1f}",
                    f"{row.scores['sentences_per_second']:,.2f}",
                    f"{row.scores['tokens_per_second']:,.0f}",
                ]
                for row in rows
            ],
        ),
        f"The whole test set with beam {settings.beam} and length penalty {settings.lenpen:g}, as fairseq-generate "
        "reports it; one model at a time, with nothing else of this recipe running. Each was measured once, its start "
        "included, which weighs on small test sets.",
        "## Plots",
        f"![Validation perplexity against updates]({PERPLEXITY_PLOT})",
        f"![BLEU, perplexity and speed against k]({COMPARISON_PLOT})",
        "## Machine",
        "\n".join(f"- {machine}" for machine in machines),
        f"Every command ran with {settings.threads} thread{'s' * (settings.threads > 1)}.",
        "## Commands",
        *(f"{row.model.name}:\n\n```\n{shlex.join(row.training['command'])}\n```" for row in rows),
    ]
    return "\n\n".join(parts) + "\n"


def _corpus_text(settings: Settings, facts: dict[str, int | float]) -> str:
    origin = f"`{settings.data['folder']}`" if "folder" in settings.data else "made by the recipe's own grammar"
    dropped = f" ({facts['dropped']:,} pairs with an empty side left out)" if facts["dropped"] else ""
    return (
        f"Corpus: {origin}. Training {facts['train']:,} sentence pairs{dropped}, validation {facts['valid']:,}, "
        f"test {facts['test']:,}. A training source has {facts['source_mean']:g} subwords on average and "
        f"{facts['source_max']:,} at most, its end symbol included; {settings.bpe_merges:,} joint BPE merges. "
        f"All models were trained for at most {settings.epochs} epoch{'s' * (settings.epochs > 1)}, "
        "with the same settings."
    )


def _jobs_text(rows: list[Row]) -> str:
    shared = [row.model.name for row in rows if row.training["jobs"] > 1]
    if not shared:
        return "Trainings ran one at a time."
    return (
        f"**Up to {max(row.training['jobs'] for row in rows)} trainings ran at a time and shared the machine "
        f"({', '.join(shared)}), so their training times compare only roughly.**"
    )


def _table(headers: list[str], rows: list[list[str]]) -> str:
    align = ("left", *["right"] * (len(headers) - 1))
    return tabulate(rows, headers=headers, tablefmt="pipe", colalign=align, disable_numparse=True)


def _or_dash(value: float | None, form: str) -> str:
    """A number, or a dash where there is none."""
    return "–" if value is None else format(value, form)
