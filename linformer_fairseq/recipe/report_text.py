"""The report as Markdown."""

import shlex
from collections.abc import Callable
from typing import Any

from tabulate import tabulate

from . import length_timing
from .datasets.wmt14 import Wmt14
from .rows import Row
from .settings import SENTENCEPIECE, Settings
from .study import PUBLISHED

NOTHING = "–"
Column = tuple[str, Callable[[Row], str]]


def report_text(
    settings: Settings, rows: list[Row], facts: dict[str, Any], timed: dict[str, Any] | None, pictures: dict[str, str]
) -> str:
    """All of it; `timed` is what lengths.json holds, `pictures` are files by what they show."""
    direction = f"{settings.text.source_lang}-{settings.text.target_lang}"
    parts = [
        f"# Transformer and Linformer, {direction}",
        _corpus(settings, facts),
        *_performance(settings, rows, facts),
        *_training_time(rows),
        *_inference_time(settings, rows),
        *(_lengths(timed) if timed else []),
        *(_study() if isinstance(settings.text.dataset, Wmt14) and direction == "en-de" else []),
        "## Plots",
        *(f"![{what}]({file})" for what, file in pictures.items()),
        "## Machines",
        _table(
            rows,
            [
                ("Trained on", lambda row: _place(row.training)),
                ("Translated on", lambda row: _place(row.scores)),
            ],
        ),
        "## Commands",
        *(f"{row.model.name}:\n\n```\n{shlex.join(row.training['command'])}\n```" for row in rows),
    ]
    return "\n\n".join(parts) + "\n"


def _place(facts: dict[str, Any]) -> str:
    return f"{facts['machine']}; threads: {facts['threads']}"


def _corpus(settings: Settings, facts: dict[str, Any]) -> str:
    text, training = settings.text, settings.training
    origin = text.dataset.origin(facts)
    dropped = ", ".join(f"{count:,} with {reason}" for reason, count in facts["dropped"].items())
    subwords = "sentencepiece's subwords" if text.bpe == SENTENCEPIECE else "joint BPE merges"
    limits = [f"{training.epochs} epoch{'s' * (training.epochs > 1)}"] if training.epochs else []
    limits += [f"{training.updates:,} updates"] if training.updates else []
    return (
        f"Corpus: {origin}. Training {facts['train']:,} sentence pairs{f' (left out: {dropped})' if dropped else ''}, "
        f"validation {facts['valid']:,}, test {facts['test']:,}. A training source has {facts['source_mean']:g} "
        f"subwords on average and {facts['source_max']:,} at most, its end symbol included; {text.bpe_merges:,} "
        f"{subwords}. All models were trained for at most {' or '.join(limits)}, with the same settings: updates of "
        f"{training.update_batches} × {training.max_tokens:,} tokens at most."
    )


def _performance(settings: Settings, rows: list[Row], facts: dict[str, Any]) -> list[str]:
    columns: list[Column] = [
        ("PPL (dev)", lambda row: f"{row.scores['perplexity']:.2f}"),
        ("BLEU", lambda row: f"{row.scores['bleu']:.2f}"),
        ("against the Transformer", _against),
        ("p", lambda row: f"{row.against_baseline['p_value']:.3f}" if row.against_baseline else NOTHING),
        ("BLEU (compound-split)", lambda row: f"{row.scores['compound_bleu']:.2f}"),
        ("chrF", lambda row: f"{row.scores['chrf']:.2f}"),
        ("Parameters", lambda row: f"{row.log.parameters:,}"),
    ]
    signatures = [
        f"`{signature}`"
        for name in ("signature", "compound_signature", "chrf_signature")
        for signature in _distinct(rows, lambda row, name=name: row.scores[name])
    ]
    averaged = settings.translation.average
    which = f"the mean of the last {averaged} saved" if averaged else "the one with the lowest validation loss"
    return [
        "## Model performance",
        _table(rows, columns),
        f"BLEU and chrF are sacreBLEU's on the plain text of all {facts['test']:,} test sentences; BLEU "
        "(compound-split) is on Moses tokens with words cut at their hyphens, as Vaswani et al. (2017) report it "
        f"({', '.join(signatures)}). The difference from the Transformer stands beside its 95 % interval, and p, "
        "sacreBLEU's, of the same resamples in a paired bootstrap: below 0.05 it is hardly chance. PPL is per "
        f"subword, of the checkpoint that translates: {which}.",
    ]


def _against(row: Row) -> str:
    found = row.against_baseline
    return f"{found['difference']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]" if found else NOTHING


def _training_time(rows: list[Row]) -> list[str]:
    columns: list[Column] = [
        ("Seconds", lambda row: _or_nothing(row.log.seconds, ",.0f")),
        ("Updates", lambda row: f"{row.log.updates:,}"),
        ("Milliseconds an update", lambda row: _or_nothing(row.per_update(), ".0f", 1000)),
        ("Tokens a second", lambda row: _or_nothing(row.per_second(), ",.0f")),
        ("Processes", lambda row: str(row.training["processes"])),
        ("Precision", lambda row: row.training["precision"]),
    ]
    return [
        "## Training time",
        _table(rows, columns),
        "Time spent in updates, without validation, saving and starting, as fairseq-train logs it (whole seconds "
        f"an epoch); tokens are target subwords.{_untimed(rows)} {_jobs(rows)}",
    ]


def _untimed(rows: list[Row]) -> str:
    lost = [row.model.name for row in rows if row.log.seconds is None]
    return f" A training that was killed has lost the time of an epoch ({', '.join(lost)})." if lost else ""


def _jobs(rows: list[Row]) -> str:
    shared = [row.model.name for row in rows if row.training["jobs"] > 1]
    if not shared:
        return "No command trained more than one of them at a time."
    return (
        f"**Up to {max(row.training['jobs'] for row in rows)} trainings ran at a time and shared the machine "
        f"({', '.join(shared)}), so their training times compare only roughly.**"
    )


def _inference_time(settings: Settings, rows: list[Row]) -> list[str]:
    columns: list[Column] = [
        ("Seconds", lambda row: f"{row.scores['seconds']:,.1f}"),
        ("Sentences a second", lambda row: f"{row.scores['sentences_per_second']:,.2f}"),
        ("Tokens a second", lambda row: f"{row.scores['tokens_per_second']:,.0f}"),
        ("Precision", lambda row: row.scores["precision"]),
    ]
    translation = settings.translation
    return [
        "## Inference time",
        _table(rows, columns),
        f"The whole test set with beam {translation.beam} and length penalty {translation.lenpen:g}, as "
        "fairseq-generate reports it; one model at a time. It counts the search alone, without loading, "
        "measured once, the first batches included, which weigh on small test sets.",
    ]


def _lengths(timed: dict[str, Any]) -> list[str]:
    """A table for the encoder and one for the whole model: a row a length, a column a model."""
    asked = timed["asked"]
    parts = [
        f"Seconds of one forward pass over {asked['tokens']:,} source tokens, as sentences of different lengths, and, "
        "with the decoder, as many target tokens at once. Medians of "
        f"{asked['repeats']} runs, all models taking turns, in {asked['precision']} ({asked['machine']}; threads: "
        f"{asked['threads']}); the models have the sizes of those above, but random weights and positions for the "
        "longest sentence.",
    ]
    for part in (length_timing.ENCODER, length_timing.WHOLE):
        table = []
        rows = [row for row in timed["rows"] if row["part"] == part]
        for length, sentences in dict.fromkeys((row["length"], row["sentences"]) for row in rows):
            cells = {row["model"]: row for row in rows if row["length"] == length}
            times = [
                cells[name]["note"] or f"{cells[name]['seconds']:.3f}" if name in cells else NOTHING
                for name in asked["models"]
            ]
            table.append([f"{length:,} / {sentences}", *times])
        parts += [f"*{part[0].upper()}{part[1:]}*", _tabulate(["Tokens / sentences", *asked["models"]], table)]
    return ["### Against sentence length", *parts]


def _study() -> list[str]:
    table = [
        [found.model, f"{found.bleu:.2f}", f"{found.sacrebleu:.2f}", f"{found.seconds_per_batch:.3f}"]
        for found in PUBLISHED
    ]
    headers = [
        "Model",
        "BLEU, as published (not comparable)",
        "sacreBLEU of its translations",
        "Seconds a batch, training (not comparable)",
    ]
    return [
        "## Published by the study",
        _tabulate(headers, table),
        "What the study that this recipe completes has published, on newstest2014. Its BLEU comes without a signature, "
        "and scoring its published translations gives other figures: these compare with our column BLEU, where that is "
        "of the whole newstest2014 and a full training. Its seconds are of another machine; their ratios compare with "
        "ours. It published no perplexity and no inference time.",
    ]


def _table(rows: list[Row], columns: list[Column]) -> str:
    return _tabulate(
        ["Model", *(header for header, _ in columns)],
        [[row.model.name, *(cell(row) for _, cell in columns)] for row in rows],
    )


def _tabulate(headers: list[str], rows: list[list[str]]) -> str:
    align = ("left", *["right"] * (len(headers) - 1))
    return tabulate(rows, headers=headers, tablefmt="pipe", colalign=align, disable_numparse=True)


def _or_nothing(value: float | None, form: str, times: float = 1) -> str:
    """A number, or a dash where there is none."""
    return NOTHING if value is None else format(times * value, form)


def _distinct(rows: list[Row], value: Callable[[Row], str]) -> list[str]:
    return list(dict.fromkeys(map(value, rows)))
