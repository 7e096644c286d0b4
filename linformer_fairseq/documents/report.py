"""The study as Markdown, from what results.json holds."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_text
from linformer_fairseq.cli.progress import say
from linformer_fairseq.cli.tables import UNKNOWN, table
from linformer_fairseq.length_buckets import Bucket

from . import plots
from .arms import SENTENCES, START, TRANSFORMER
from .costs import TRAINING, TRANSLATION
from .sets import GLOSSARY, LONG, TEST, VALID
from .translate import FORCED, FREE

Found = dict[str, Any]
"""What results.json holds, or an entry of it."""
Way = tuple[str, int, str]
"""A set, the tokens at which its documents were cut, and the mode."""


def write_report(out: Path) -> None:
    """Writes report.md and the pictures of the results.json in a folder.

    Raises:
        UserError: there is none.
    """
    path = out / "results.json"
    if not path.is_file():
        raise UserError(f"{path} is missing: run the study without --report-only first.")
    found = read_json(path)
    pictures = plots.write_plots(found, out)
    write_text(out / "report.md", report_text(found, pictures))
    say(f"The report is in {out / 'report.md'}.")


def report_text(found: Found, pictures: dict[str, str]) -> str:
    """Returns the whole report; `pictures` are files by what they show."""
    parts = [
        "# Documents: quality and cost of each kind of attention",
        _introduction(found),
        *_quality(found),
        *_by_length(found),
        *_by_position(found),
        *_completeness(found),
        *_glossary(found),
        *_costs(found),
        *_trainings(found),
        *_flags(found),
    ]
    if pictures:
        parts += ["## Plots", *(f"![{what}]({file})" for what, file in pictures.items())]
    return "\n\n".join([*parts, *_commands(found)]) + "\n"


def label(found: Found, arm: str) -> str:
    """Returns what tables call a model."""
    return START.label if arm == START.name else found["arms"][arm]["label"]


def rows_of(found: Found, way: Way) -> dict[str, list[Found]]:
    """Returns the rows of every model, a row a seed, of a way to translate."""
    by_arm: dict[str, list[Found]] = {}
    for row in found["rows"]:
        same = (row["set"], row["longest"], row["mode"]) == way
        if same or (row["arm"] == SENTENCES.name and row["set"] == way[0] and way[2] == FORCED):
            by_arm.setdefault(row["arm"], []).append(row)
    return {arm: by_arm[arm] for arm in found["arms"] if arm in by_arm}


def ways_of(found: Found, set_name: str, mode: str = FORCED) -> list[Way]:
    """Returns the ways in which a set was translated, by length."""
    lengths = {row["longest"] for row in found["rows"] if (row["set"], row["mode"]) == (set_name, mode)}
    return [(set_name, length, mode) for length in sorted(lengths)]


def difference_of(found: Found, arm: str, way: Way) -> Found | None:
    """Returns how far a model is from the Transformer; None where that is not known."""
    for row in found["differences"]:
        if row["arm"] == arm and (row["set"], row["longest"], row["mode"]) == way:
            return row
    return None


def mean(rows: Sequence[Found], name: str) -> float | None:
    """Returns the mean of a fact over the seeds; None where one does not have it."""
    values = [row[name] for row in rows]
    return None if None in values else float(numpy.mean(values))


def _introduction(found: Found) -> str:
    corpus, sets = found["corpus"], found["documents"]
    seeds = sorted({row["seed"] for row in found["rows"]})
    several = [label(found, arm) for arm, own in _seeds(found).items() if len(own) > 1]
    resolutions = ", ".join(map(str, found["resolutions"]))
    which = f"the mean of its last {found['average']} saves" if found["average"] else "its best save"
    told = (
        f"Seeds {', '.join(map(str, seeds))} for {', '.join(several)}; one for the others."
        if several
        else (
            f"One seed ({seeds[0]}) for every model: another seed alone moves BLEU by as much as many of these "
            "differences."
        )
    )
    return (
        f"{found['text']}: {corpus['train']:,} sentence pairs to train on; documents: "
        f"{', '.join(f'{name} {count:,}' for name, count in sets.items())}. {found['machine']}.\n\n"
        f"A Transformer is trained on sentences ({found['start']['updates']:,} updates of up to "
        f"{found['start']['max_tokens']:,} tokens). From there every model goes on for {found['updates']:,} updates of "
        f"up to {found['max_tokens']:,} tokens with examples of {resolutions} sentences and of whole documents, up to "
        f"{found['longest_example']:,} tokens, in {found['precision']}, with k = {found['k']}. It translates with "
        f"{which}, beam {found['beam']}, and as many sentences as the source has. {told} Intervals are the 95 % of a "
        "paired bootstrap over documents (Koehn, 2004), which knows nothing of seeds."
    )


def _seeds(found: Found) -> dict[str, set[int]]:
    seeds: dict[str, set[int]] = {}
    for row in found["rows"]:
        seeds.setdefault(row["arm"], set()).add(row["seed"])
    return seeds


def _cell(found: Found, arm: str, way: Way) -> str:
    """Returns d-BLEU, and its difference from the Transformer's."""
    rows = rows_of(found, way).get(arm)
    if not rows:
        return UNKNOWN
    difference = difference_of(found, arm, way)
    score = f"{mean(rows, 'd_bleu'):.2f}"
    return score if difference is None else f"{score} ({_difference(difference)})"


def _difference(found: Found) -> str:
    return f"{found['mean']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"


def _quality(found: Found) -> list[str]:
    parts = ["## Quality"]
    for name, what in (
        (TEST, "the test set, its documents cut where they have more tokens than that"),
        (LONG, "the test set with documents that follow each other as one, up to that length"),
        (VALID, "the validation set"),
    ):
        if ways := ways_of(found, name):
            lines = [[label(found, arm), *(_cell(found, arm, way) for way in ways)] for arm in rows_of(found, ways[-1])]
            headers = ["Model", *(f"{length:,} tokens" for _, length, _ in ways)]
            parts += [f"d-BLEU (a document is a segment) on {what}; in brackets the difference from the Transformer:"]
            parts += [table(headers, lines)]
    if ways := ways_of(found, TEST):
        way = ways[-1]
        lines = []
        for arm, rows in rows_of(found, way).items():
            difference = difference_of(found, arm, way)
            by_third = [f"{third['mean']:+.2f}" for third in difference["thirds"]] if difference else [UNKNOWN] * 3
            scores = [_number(mean(rows, score), ".2f") for score in ("d_bleu", "s_bleu", "chrf")]
            lines.append([label(found, arm), *scores, *by_third])
        headers = ["Model", "d-BLEU", "s-BLEU", "chrF", "shortest third", "middle", "longest third"]
        signatures = dict.fromkeys(
            row[name] for row in found["rows"] for name in ("d_bleu_signature", "chrf_signature")
        )
        parts += [
            f"The test set, cut at {way[1]:,} tokens; the thirds of the documents by length have d-BLEU's difference "
            "from the Transformer's:",
            table(headers, lines),
            f"Signatures: {', '.join(f'`{signature}`' for signature in signatures)}.",
        ]
    return parts


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _by_length(found: Found) -> list[str]:
    ways = [ways[-1] for name in (TEST, LONG) if (ways := ways_of(found, name))]
    tables = [_bucket_table(found, way, "by_length", str, "documents") for way in ways]
    return ["## d-BLEU by the length of the document", *tables] if tables else []


def _bucket_table(found: Found, way: Way, name: str, shown: Callable[[Bucket], str], unit: str) -> str:
    """Returns a table of a score in ranges, with a column for each range."""
    by_arm = {arm: rows for arm, rows in rows_of(found, way).items() if all(row.get(name) for row in rows)}
    if not by_arm:
        return ""
    first = next(iter(by_arm.values()))[0][name]
    headers = [f"{shown(Bucket(own['shortest'], own['longest']))} ({own['number']:,} {unit})" for own in first]
    lines = []
    for arm, rows in by_arm.items():
        means = numpy.mean([[own["score"] for own in row[name]] for row in rows], axis=0)
        lines.append([label(found, arm), *(f"{value:.1f}" for value in means)])
    return table(["Model", *headers], lines)


def _by_position(found: Found) -> list[str]:
    ways = ways_of(found, TEST)
    if not ways:
        return []
    shown = _bucket_table(found, ways[-1], "by_position", _sentences, "sentences")
    return ["## BLEU by the place of the sentence in its document", shown]


def _sentences(bucket: Bucket) -> str:
    return f"{bucket.shortest} and later" if bucket.longest is None else f"{bucket.shortest} to {bucket.longest}"


def _completeness(found: Found) -> list[str]:
    parts = []
    for mode, what in (
        (FORCED, "with as many sentences as the source has"),
        (FREE, "with no number of sentences forced"),
    ):
        ways = ways_of(found, TEST, mode)
        if not ways:
            continue
        lines = [
            [
                label(found, arm),
                _number(mean(rows, "d_bleu"), ".2f"),
                _number(mean(rows, "length_ratio"), ".3f"),
                _number(_percent(mean(rows, "missing")), ".1f"),
                _number(_percent(mean(rows, "repeated")), ".1f"),
            ]
            for arm, rows in rows_of(found, ways[-1]).items()
        ]
        headers = ["Model", "d-BLEU", "Length ratio", "Missing, %", "Repeated, %"]
        parts += [f"Translated {what}, documents cut at {ways[-1][1]:,} tokens:", table(headers, lines)]
    if not parts:
        return []
    return [
        "## Missing and repeated sentences",
        *parts,
        "Missing: of the source's sentences, those that the translation has too few of. Repeated: sentences that stand "
        "in their document before, beyond those of the references.",
    ]


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _glossary(found: Found) -> list[str]:
    ways = ways_of(found, GLOSSARY)
    if not ways:
        return []
    by_arm = {arm: rows for arm, rows in rows_of(found, ways[-1]).items() if all("glossary" in row for row in rows)}
    first = next(iter(by_arm.values()))[0]["glossary"]
    headers = [f"{Bucket(own['shortest'], own['longest'])} ({own['number']:,})" for own in first]
    lines = []
    for arm, rows in by_arm.items():
        means = 100 * numpy.mean([[own["score"] for own in row["glossary"]] for row in rows], axis=0)
        lines.append([label(found, arm), *(f"{value:.1f}" for value in means), _number(mean(rows, "d_bleu"), ".2f")])
    return [
        "## Glossaries",
        "Made documents whose first lines say how made-up names are to be translated, drawn anew for each document. "
        "The share of names, in per cent, that are translated so, by the tokens between that line and the sentence:",
        table(["Model", *headers, "d-BLEU"], lines),
    ]


def cost_rows(found: Found, part: str) -> dict[int, dict[str, Found]]:
    """Returns what was measured of training or translation, by length and model."""
    rows: dict[int, dict[str, Found]] = {}
    for row in found["costs"]["rows"] if found.get("costs") else ():
        if row["part"] == part:
            rows.setdefault(row["length"], {})[row["arm"]] = row
    return rows


def _costs(found: Found) -> list[str]:
    training, translation = cost_rows(found, TRAINING), cost_rows(found, TRANSLATION)
    if not training:
        return []
    asked = found["costs"]["asked"]
    lengths = list(training)
    headers = ["Model", *(f"{length:,}" for length in lengths)]

    def lines(rows: dict[int, dict[str, Found]], shown: Callable[[Found, Found], str]) -> str:
        written = [
            [label(found, arm), *(shown(rows[length][arm], rows[length][TRANSFORMER]) for length in lengths)]
            for arm in asked["arms"]
        ]
        return table(headers, written)

    parts = [
        "## Time and memory",
        f"Of the trained models, on random tokens, every document of the same length and translated into as many "
        f"tokens ({asked['machine']}; threads: {asked['threads']}).",
    ]
    if all(TRANSFORMER in own for own in training.values()):
        parts += [
            "Training, target tokens/s, and as multiples of the Transformer's:",
            lines(training, lambda own, base: _ratio(own, base, "tokens_per_second", ",.0f")),
            "Peak memory of a training step in MB, and as multiples of the Transformer's:",
            lines(training, lambda own, base: _ratio(own, base, "peak_bytes", ",.0f", 1e-6)),
        ]
    if translation and all(TRANSFORMER in own for own in translation.values()):
        first = next(iter(translation[lengths[0]].values()))
        counts = ", ".join(f"{translation[length][TRANSFORMER]['documents']} of {length:,}" for length in lengths)
        parts += [
            f"Translation with beam {first['beam']} ({counts} tokens), seconds, and how many times as fast as the "
            "Transformer:",
            lines(translation, lambda own, base: f"{own['seconds']:,.1f} ({base['seconds'] / own['seconds']:.2f})"),
            "Peak memory of translation in MB, and as multiples of the Transformer's:",
            lines(translation, lambda own, base: _ratio(own, base, "peak_bytes", ",.0f", 1e-6)),
        ]
    return parts


def _ratio(own: Found, base: Found, name: str, form: str, unit: float = 1.0) -> str:
    if own[name] is None or not base[name]:
        return UNKNOWN
    return f"{own[name] * unit:{form}} ({own[name] / base[name]:.2f})"


def _trainings(found: Found) -> list[str]:
    lines = []
    for row in found["trainings"]:
        if "updates" in row:
            speed = row["tokens"] / row["seconds"] if row["seconds"] and row["tokens"] else None
            curve = row["validation_curve"]
            lines.append(
                [
                    label(found, row["arm"]),
                    str(row["seed"]),
                    f"{row['parameters']:,}",
                    f"{row['updates']:,}",
                    f"{min(value for _, value in curve):.2f}" if curve else UNKNOWN,
                    _number(speed, ",.0f"),
                ]
            )
    headers = ["Model", "Seed", "Parameters", "Updates", "Perplexity", "Tokens/s"]
    jobs = max((row.get("jobs", 1) for row in found["trainings"]), default=1)
    shared = f" Up to {jobs} trainings ran at a time and shared the machine." if jobs > 1 else ""
    return [
        "## Training",
        table(headers, lines),
        "Perplexity is the lowest on what the training validates on, sentences or documents. Tokens/s are target "
        f"tokens in updates, of the mixture of short and long examples.{shared}",
    ]


def _flags(found: Found) -> list[str]:
    lines = [
        [own["label"], own["what"], f"`{own['flags']}`" if own["flags"] else UNKNOWN] for own in found["arms"].values()
    ]
    return ["## Models", table(["Model", "What it is", "Flags"], lines)]


def _commands(found: Found) -> list[str]:
    parts = ["## Commands", f"```\n{found['command']}\n```"]
    for row in found["trainings"]:
        if "command" in row and row["seed"] == min(own["seed"] for own in found["trainings"]):
            parts.append(f"{label(found, row['arm'])}:\n\n```\n{shlex.join(row['command'])}\n```")
    return parts
