"""The report as Markdown."""

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from linformer_fairseq.cli.files import read_json
from linformer_fairseq.cli.tables import UNKNOWN, table, with_interval
from linformer_fairseq.modules.level_sizes import EXACT_BELOW

from . import length_timing
from .evaluate import TEST
from .rows import Row
from .settings import REPORT_NAMES, SCORES, SENTENCEPIECE, Model, Settings


class Column(NamedTuple):
    """A column of a table of models."""

    header: str
    name: str
    """Of the fact, in results.json."""
    form: str | Callable[[Any], str] = ""
    """How the fact is written: a format specification, or a function."""


def written(fact: Any, form: str | Callable[[Any], str]) -> str:
    """Returns a fact as text, or a dash for None."""
    if fact is None:
        return UNKNOWN
    return format(fact, form) if isinstance(form, str) else form(fact)


def summary(model: Model, out: Path) -> str:
    """Returns a model's scores, for the terminal."""
    row = Row(model, read_json(out / "models" / model.slug / TEST / SCORES))

    def fact(name: str, form: str = "") -> str:
        return written(row[name], form)

    return (
        f"  {model.name}: perplexity {fact('perplexity', '.2f')} (validation)\n"
        f"    sacreBLEU {fact('bleu', '.2f')} ({fact('signature')})\n"
        f"    tokenised, compounds split: BLEU {fact('compound_bleu', '.2f')} ({fact('compound_signature')})\n"
        f"    chrF {fact('chrf', '.2f')} ({fact('chrf_signature')})\n"
        f"    {fact('sentences_per_second', ',.2f')} sentences/s, {fact('tokens_per_second', ',.0f')} tokens/s"
    )


def report_title(settings: Settings) -> str:
    """Returns the report's title, with the languages."""
    return f"Full and efficient attention, {settings.text.source_lang}-{settings.text.target_lang}"


def report_text(
    settings: Settings, rows: list[Row], facts: dict[str, Any], timed: dict[str, Any] | None, pictures: dict[str, str]
) -> str:
    """Returns the whole report; `timed` is what lengths.json holds, `pictures` are files by what they show."""
    text = settings.text
    parts = [
        f"# {report_title(settings)}",
        _corpus(settings, facts),
        *_performance(settings, rows, facts),
        *_training_time(rows),
        *_inference_time(settings, rows),
        *(_lengths(timed) if timed else []),
        *text.dataset.published(text.source_lang, text.target_lang),
        "## Plots",
        *(f"![{what}]({file})" for what, file in pictures.items()),
        *_machines(rows),
        *_commands(rows),
    ]
    return "\n\n".join(parts) + "\n"


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
        f"{training.update_batches} × {training.max_tokens:,} tokens at most.{_exactness(training.exact_below)}"
    )


def _exactness(exact_below: int | None) -> str:
    """Returns a sentence on which texts two levels attend to in full, where the recipe says so."""
    if exact_below is None:
        return ""
    flag = f"`--linformer-exact-below {exact_below}`"
    if exact_below:
        return f" Models with two levels attend to texts of fewer than {exact_below:,} tokens in full ({flag})."
    return f" Models with two levels attend to no sentence in full because it is short ({flag})."


def _performance(settings: Settings, rows: list[Row], facts: dict[str, Any]) -> list[str]:
    columns = [
        Column("PPL (dev)", "perplexity", ".2f"),
        Column("BLEU", "bleu", ".2f"),
        Column("against the Transformer", "bleu_against_transformer", _difference),
        Column("p (one seed)", "bleu_against_transformer", lambda found: f"{found['p_value']:.3f}"),
        Column("BLEU (compound-split)", "compound_bleu", ".2f"),
        Column("chrF", "chrf", ".2f"),
        Column("Parameters", "parameters", ","),
    ]
    names = ("signature", "compound_signature", "chrf_signature")
    signatures = dict.fromkeys(f"`{row[name]}`" for name in names for row in rows if row[name])
    averaged = settings.translation.average
    which = f"the mean of the last {averaged} saved" if averaged else "the one with the lowest validation loss"
    return [
        "## Model performance",
        _table(rows, columns),
        f"BLEU and chrF are sacreBLEU's on the plain text of all {facts['test']:,} test sentences; BLEU "
        "(compound-split) is on Moses tokens with words cut at their hyphens, as Vaswani et al. (2017) report it "
        f"({', '.join(signatures)}). PPL is per subword, of the checkpoint that translates: {which}. The difference "
        "from the Transformer stands beside its 95 % interval; the interval and p are those of sacreBLEU's paired "
        "bootstrap over the test sentences.",
        "Every row is one training with one seed. A bootstrap over sentences knows nothing of seeds: another seed "
        "alone can change BLEU by as much as a difference whose p is below 0.05. Only trainings with several seeds "
        "show which model is better.",
    ]


def _difference(found: dict[str, float]) -> str:
    return with_interval(found["difference"], found["low"], found["high"])


def _training_time(rows: list[Row]) -> list[str]:
    columns = [
        Column("Seconds", "training_seconds", ",.0f"),
        Column("Updates", "training_updates", ","),
        Column("Milliseconds per update", "training_seconds_per_update", lambda seconds: f"{1000 * seconds:.0f}"),
        Column("Tokens per second", "training_tokens_per_second", ",.0f"),
        Column("Processes", "processes"),
        Column("Precision", "training_precision"),
    ]
    lost = [row.model.name for row in rows if row["training_seconds"] is None]
    shared = {row.model.name: row["jobs"] for row in rows if (row["jobs"] or 1) > 1}
    parts = [
        "Time spent in updates, without validation, saving and starting, as fairseq-train logs it (whole seconds "
        "per epoch); tokens are target subwords."
    ]
    if lost:
        parts.append(f"A training that was killed has lost the time of an epoch ({', '.join(lost)}).")
    if shared:
        parts.append(
            f"**Up to {max(shared.values())} trainings ran at a time and shared the machine ({', '.join(shared)}), so "
            "their training times compare only roughly.**"
        )
    else:
        parts.append("No command trained more than one of them at a time.")
    return ["## Training time", _table(rows, columns), " ".join(parts)]


def _inference_time(settings: Settings, rows: list[Row]) -> list[str]:
    columns = [
        Column("Seconds", "seconds", ",.1f"),
        Column("Sentences per second", "sentences_per_second", ",.2f"),
        Column("Tokens per second", "tokens_per_second", ",.0f"),
        Column("Precision", "precision"),
    ]
    translation = settings.translation
    return [
        "## Inference time",
        _table(rows, columns),
        f"The whole test set with beam {translation.beam} and length penalty {translation.lenpen:g}, as "
        "fairseq-generate reports it; one model at a time. It counts the search alone, without loading, "
        "measured once, the first batches included, which weigh on small test sets.",
    ]


def _machines(rows: list[Row]) -> list[str]:
    columns = [
        Column("Trained on", "training_machine"),
        Column("Threads of each process", "training_threads"),
        Column("Translated on", "machine"),
        Column("Threads", "threads"),
    ]
    return ["## Machines", _table(rows, columns)]


def _commands(rows: list[Row]) -> list[str]:
    commands = [f"{row.model.name}:\n\n```\n{shlex.join(row['command'])}\n```" for row in rows if row["command"]]
    return ["## Commands", *commands]


def _lengths(timed: dict[str, Any]) -> list[str]:
    """Returns a table for each part that was timed, with a row for each length and a column for each model."""
    asked = timed["asked"]
    steps = f" A {length_timing.TRAINING} is forward, backward and update of the whole model."
    parts = [
        f"Seconds of one forward pass over {asked['tokens']:,} source tokens, as sentences of different lengths, and, "
        f"with the decoder, as many target tokens at once.{steps if asked.get('training') else ''} Medians of "
        f"{asked['repeats']} runs, all models taking turns, in {asked['precision']} ({asked['machine']}; threads: "
        f"{asked['threads']}); the models have the sizes of those above, but random weights and positions for the "
        "longest sentence.",
        *_untrained(asked),
        *_crossings(timed),
    ]
    for part in dict.fromkeys(row["part"] for row in timed["rows"]):
        lines = []
        rows = [row for row in timed["rows"] if row["part"] == part]
        for length, sentences in dict.fromkeys((row["length"], row["sentences"]) for row in rows):
            cells = {row["model"]: row for row in rows if row["length"] == length}
            times = [
                cells[name]["note"] or f"{cells[name]['seconds']:.3f}" if name in cells else UNKNOWN
                for name in asked["models"]
            ]
            lines.append([f"{length:,} / {sentences}", *times])
        parts += [f"*{part[0].upper()}{part[1:]}*", table(["Tokens / sentences", *asked["models"]], lines)]
    return ["## Time against sentence length", *parts]


def _untrained(asked: dict[str, Any]) -> list[str]:
    """Returns a paragraph on the models that were timed without having been trained, where there are some."""
    names = asked.get("untrained")
    if not names:
        return []
    two_levels = any(name.startswith(REPORT_NAMES["two-level"]) for name in names)
    exact = f"; two levels attend to texts of fewer than {EXACT_BELOW:,} tokens in full by default" * two_levels
    return [
        f"The models of the tables above are as they were trained; their k suits sentences. {' and '.join(names)} "
        f"{'was' if len(names) == 1 else 'were'} not trained: that is what one would take for long texts{exact}. No "
        "time says how well a model translates texts of that length."
    ]


def _crossings(timed: dict[str, Any]) -> list[str]:
    """Returns a table of the lengths from which on each model is faster than the Transformer; none without it."""
    baseline, names = Model().name, timed["asked"]["models"]
    if baseline not in names:
        return []
    parts = list(dict.fromkeys(row["part"] for row in timed["rows"]))
    lines = [
        [name, *(_crossing([row for row in timed["rows"] if row["part"] == part], name, baseline) for part in parts)]
        for name in names
        if name != baseline
    ]
    return [
        "The length from which on each model was faster than the Transformer in this run, the upper quartile of its "
        "times being below the lower quartile of the Transformer's:",
        table(["Faster than the Transformer", *parts], lines),
    ]


def _crossing(rows: list[dict[str, Any]], name: str, baseline: str) -> str:
    """Returns from which length on a model was faster than the baseline at all lengths of `rows`."""
    own, full = ({row["length"]: row for row in rows if row["model"] == model} for model in (name, baseline))
    lengths = sorted(own.keys() & full.keys())  # a study that was stopped has fewer for some
    if not lengths:
        return UNKNOWN
    slower = [length for length in lengths if not _faster(own[length], full[length])]
    faster = [length for length in lengths if length > max(slower, default=0)]
    return f"from {faster[0]:,} tokens on" if faster else f"not up to {lengths[-1]:,} tokens"


def _faster(row: dict[str, Any], baseline: dict[str, Any]) -> bool:
    """Returns whether the runs of a row took less time than a baseline's, which may not have run for want of memory."""
    if not row["seconds"] or not baseline["seconds"]:
        return bool(row["seconds"])
    return bool(row["quartiles"][1] < baseline["quartiles"][0])


def _table(rows: list[Row], columns: list[Column]) -> str:
    return table(
        ["Model", *(column.header for column in columns)],
        [[row.model.name, *(written(row[column.name], column.form) for column in columns)] for row in rows],
    )
