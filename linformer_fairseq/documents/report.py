"""The study as Markdown, from what results.json holds."""

import shlex
from collections.abc import Callable
from pathlib import Path

import numpy

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_text
from linformer_fairseq.cli.progress import say
from linformer_fairseq.cli.tables import UNKNOWN, table
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.recipe.datasets.documents import GLOSSARIES
from linformer_fairseq.recipe.glossary import TRANSLATIONS

from . import plots
from .arms import ARMS, BASES, TRANSFORMER, for_length
from .costs import TRAINING, TRANSLATION
from .found import (
    RESULTS,
    Found,
    cost_rows,
    difference_of,
    glossary_means,
    interval,
    interval_in_points,
    is_of,
    label,
    mean,
    rows_of,
    ways_in,
)
from .merge import read_results
from .sets import GLOSSARY, LONG, TEST, VALID
from .translate import FORCED, FREE, Way

_ALIGNED = (
    "A sentence's translation is the one with the same number, where all sentences begin with their numbers, and "
    "otherwise the one in the same place."
)


def write_report(out: Path) -> None:
    """Writes report.md and the pictures of the results.json in a folder.

    Raises:
        UserError: there is none, or it holds something else.
    """
    path = out / RESULTS
    if not path.is_file():
        raise UserError(f"{path} is missing: run the study without --report-only first.")
    found = read_results(path)
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
        *_beside_bases(found),
        *_costs(found),
        *_trainings(found),
        *_flags(found),
    ]
    if pictures:
        parts += ["## Plots", *(f"![{what}]({file})" for what, file in pictures.items())]
    return "\n\n".join([*parts, *_commands(found)]) + "\n"


def _introduction(found: Found) -> str:
    corpus, sets, machines = found["corpus"], found["documents"], "; ".join(found["machines"])
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
    made = corpus.get(GLOSSARIES, {}).get("train")
    among = f", those of {made:,} documents with glossaries among them" if made else ""
    return (
        f"{found['text']}: {corpus['train']:,} sentence pairs to train on{among}; documents to translate: "
        f"{', '.join(f'{count:,} in the {name} set' for name, count in sets.items())}. {machines}.\n\n"
        f"A Transformer is trained on {', '.join(map(str, found['start']['resolutions']))} sentences at a time "
        f"({found['start']['updates']:,} updates of up to {found['start']['max_tokens']:,} tokens). From there every "
        f"model goes on for {found['updates']:,} updates of up to {found['max_tokens']:,} tokens with examples of "
        f"{resolutions} sentences and of whole documents, up to {found['longest_example']:,} tokens, in "
        f"{found['precision']}. Linformer and two levels have k = {found['k']}, and two levels attend to texts of "
        f"fewer than {found['exact_below']:,} tokens in full.{_beyond_training(found)} Each model translates with "
        f"{which} and beam {found['beam']}, into as many sentences as the source has.\n\n"
        f"{told} Differences from the Transformer are over the seeds that both models have. 95 % intervals are from a "
        "paired bootstrap over documents (Koehn, 2004): they do not cover the variation between seeds, and they are "
        "too narrow for a handful of documents."
    )


def _beyond_training(found: Found) -> str:
    """Returns what to know of models on texts that are longer than those that they were trained on."""
    longest, trained = found["lengths"][-1], found["longest_example"]
    changed = [own for arm in found["arms"] if (own := for_length(ARMS[arm], longest, trained, found["k"]))]
    if not changed:
        return ""
    return (
        f" Longer texts than in training have more windows rather than wider ones, k = {changed[0]['linformer_k']} in "
        f"encoder and cross-attention at {longest:,} tokens."
    )


def _seeds(found: Found) -> dict[str, set[int]]:
    seeds: dict[str, set[int]] = {}
    for row in found["rows"]:
        seeds.setdefault(row["arm"], set()).add(row["seed"])
    return seeds


def _cell(found: Found, arm: str, way: Way, base: str = TRANSFORMER) -> str:
    """Returns d-BLEU, and its difference from that of another model."""
    rows = rows_of(found, way).get(arm)
    if not rows:
        return UNKNOWN
    difference = difference_of(found, arm, way, base)
    score = f"{mean(rows, 'd_bleu'):.2f}"
    return score if difference is None else f"{score} ({interval(difference)})"


def _name_cells(found: Found, arm: str, way: Way, base: str = TRANSFORMER) -> list[str]:
    """Returns the share of names that are translated as their glossary says, in per cent by distance, each with its
    difference from that of another model."""
    cells = [f"{100 * share:.1f}" for share in glossary_means(rows_of(found, way)[arm])]
    if difference := difference_of(found, arm, way, base):
        intervals = map(interval_in_points, difference["glossary"])
        cells = [f"{cell} ({own})" for cell, own in zip(cells, intervals, strict=True)]
    return cells


def _each_seed(
    found: Found, by_arm: dict[str, list[Found]], headers: list[str], cells: Callable[[Found], list[str]]
) -> list[str]:
    """Returns a table with a line for every seed of the models that have several; nothing where none has."""
    lines = [
        [label(found, arm), str(row["seed"]), *cells(row)]
        for arm, rows in by_arm.items()
        if len(rows) > 1
        for row in rows
    ]
    return ["Each seed by itself:", table(["Model", "Seed", *headers], lines)] if lines else []


def _quality(found: Found) -> list[str]:
    parts = ["## Quality"]
    for name, what in (
        (TEST, "the test set, its documents cut where they have more tokens than that"),
        (
            LONG,
            f"the test set with as many documents in a row as one as fit into {found['lengths'][-1]:,} tokens (less a "
            "sixteenth, as translations may be longer), and cut where they have more tokens than that",
        ),
        (VALID, "the validation set"),
    ):
        if ways := ways_in(found, name):
            lines = [[label(found, arm), *(_cell(found, arm, way) for way in ways)] for arm in rows_of(found, ways[-1])]
            headers = ["Model", *(f"{way.longest:,} tokens" for way in ways)]
            parts += [f"d-BLEU (a document is a segment) on {what}; in brackets the difference from the Transformer:"]
            parts += [table(headers, lines)]
    parts += _quality_of_each_seed(found)
    if ways := ways_in(found, TEST):
        way = ways[-1]
        lines = []
        for arm, rows in rows_of(found, way).items():
            difference = difference_of(found, arm, way)
            by_third = [f"{third['mean']:+.2f}" for third in difference["thirds"]] if difference else []
            by_third += [UNKNOWN] * (3 - len(by_third))
            scores = [_number(mean(rows, score), ".2f") for score in ("d_bleu", "s_bleu", "chrf")]
            lines.append([label(found, arm), *scores, *by_third])
        headers = ["Model", "d-BLEU", "s-BLEU", "chrF", "Δ, shortest third", "Δ, middle third", "Δ, longest third"]
        signatures = dict.fromkeys(
            row[name] for row in found["rows"] for name in ("d_bleu_signature", "chrf_signature")
        )
        parts += [
            f"The test set, cut at {way.longest:,} tokens; Δ is the difference in d-BLEU from the Transformer in each "
            "third of the documents by length:",
            table(headers, lines),
            f"For s-BLEU a sentence is a segment. {_ALIGNED} Signatures: "
            f"{', '.join(f'`{signature}`' for signature in signatures)}.",
        ]
    return parts


def _quality_of_each_seed(found: Found) -> list[str]:
    ways = [*ways_in(found, TEST), *ways_in(found, LONG)]
    if not ways:
        return []
    scores = {(row["arm"], row["seed"], way): row["d_bleu"] for way in ways for row in found["rows"] if is_of(row, way)}
    return _each_seed(
        found,
        rows_of(found, ways[0]),
        [f"{way.set_name}, {way.longest:,} tokens" for way in ways],
        lambda row: [_number(scores.get((row["arm"], row["seed"], way)), ".2f") for way in ways],
    )


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else format(value, form)


def _by_length(found: Found) -> list[str]:
    parts = []
    for name, what in ((TEST, "The test set"), (LONG, "The test set with documents that follow each other as one")):
        if ways := ways_in(found, name):
            parts += [f"{what}, cut at {ways[-1].longest:,} tokens:", _bucket_table(found, ways[-1], "by_length", str)]
    return ["## d-BLEU by the length of the document", *parts] if parts else []


def _bucket_table(found: Found, way: Way, name: str, shown: Callable[[Bucket], str]) -> str:
    """Returns a table of a score in ranges, with a column for each range and how much is in it; empty where no model
    has that score."""
    by_arm = {arm: rows for arm, rows in rows_of(found, way).items() if all(row[name] for row in rows)}
    if not by_arm:
        return ""
    first = next(iter(by_arm.values()))[0][name]
    headers = [f"{shown(Bucket(own['shortest'], own['longest']))} ({own['number']:,})" for own in first]
    lines = []
    for arm, rows in by_arm.items():
        means = numpy.mean([[own["score"] for own in row[name]] for row in rows], axis=0)
        lines.append([label(found, arm), *(f"{value:.1f}" for value in means)])
    return table(["Model", *headers], lines)


def _by_position(found: Found) -> list[str]:
    ways = ways_in(found, TEST)
    shown = _bucket_table(found, ways[-1], "by_position", _sentences) if ways else ""
    return ["## BLEU by the place of the sentence in its document", shown, _ALIGNED] if shown else []


def _sentences(bucket: Bucket) -> str:
    return f"{bucket.shortest} and later" if bucket.longest is None else f"{bucket.shortest} to {bucket.longest}"


def _completeness(found: Found) -> list[str]:
    parts = []
    for mode, what in (
        (FORCED, "with as many sentences as the source has"),
        (FREE, "with no number of sentences forced"),
    ):
        ways = ways_in(found, TEST, mode)
        if not ways:
            continue
        lines = [
            [
                label(found, arm),
                _number(mean(rows, "d_bleu"), ".2f"),
                _number(mean(rows, "length_ratio"), ".3f"),
                _number(_percent(mean(rows, "missing")), ".1f"),
                _number(_percent(mean(rows, "displaced")), ".1f"),
                _number(_percent(mean(rows, "repeated")), ".1f"),
                _number(mean(rows, "halved"), ".0f"),
            ]
            for arm, rows in rows_of(found, ways[-1]).items()
        ]
        headers = ["Model", "d-BLEU", "Length ratio", "Missing, %", "Elsewhere, %", "Repeated, %", "In halves"]
        parts += [f"Translated {what}, documents cut at {ways[-1].longest:,} tokens:", table(headers, lines)]
    if not parts:
        return []
    return [
        "## Missing and repeated sentences",
        *parts,
        "Missing: the share of source sentences without a translation. Elsewhere: the share of those whose translation "
        "stands in another place, as a sentence before it has been left out or divided. Both are by the numbers with "
        "which sentences begin; where they have none, missing are those that a translation has too few, none if their "
        "number is forced. Repeated: the share of sentences that have already occurred in their document, beyond that "
        "of the references. In halves: how often a translation reached the longest target that the models are made for "
        "before its end, and was made again in two parts.",
    ]


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _glossary(found: Found) -> list[str]:
    ways = ways_in(found, GLOSSARY)
    if not ways:
        return []
    by_arm = {arm: rows for arm, rows in rows_of(found, ways[-1]).items() if all("glossary" in row for row in rows)}
    first = next(iter(by_arm.values()))[0]["glossary"]
    headers = [f"{Bucket(own['shortest'], own['longest'])} ({own['number']:,})" for own in first]
    lines = [["any name of the glossary", *(f"{100 * own['chance']:.1f}" for own in first), UNKNOWN]]
    for arm, rows in by_arm.items():
        lines.append([label(found, arm), *_name_cells(found, arm, ways[-1]), _number(mean(rows, "d_bleu"), ".2f")])
    seeds = _each_seed(
        found,
        by_arm,
        [*headers, "d-BLEU"],
        lambda row: [*(f"{100 * share:.1f}" for share in glossary_means([row])), f"{row['d_bleu']:.2f}"],
    )
    return [
        "## Glossaries",
        f"{found['documents'][GLOSSARY]:,} synthetic documents whose first lines say how made-up names are to be "
        "translated. The names and their lines are the same in all of them; which of "
        f"{len(TRANSLATIONS)} translations a name has is drawn anew for each document. The share of names, in per "
        "cent, that are translated so, by the tokens since the name was last there, in its line or in a later "
        "sentence; the first row is what a name drawn from the same glossary would give. A name is looked for in the "
        "sentence with the number of its own, wherever that stands. In brackets the difference from the Transformer in "
        "points, with the same kind of interval; another seed may differ by far more:",
        table(["Model", *headers, "d-BLEU"], lines),
        *seeds,
    ]


def _beside_bases(found: Found) -> list[str]:
    """Returns a table for each model that is compared with another one than the Transformer, too."""
    parts = []
    for arm, base in BASES.items():
        if lines := [*_scores_beside(found, arm, base), *_names_beside(found, arm, base)]:
            parts += [
                f"In brackets the difference from {label(found, base)}:",
                table(["", label(found, base), label(found, arm)], lines),
            ]
    return ["## Beside full attention with the same convolution", *parts] if parts else []


def _scores_beside(found: Found, arm: str, base: str) -> list[list[str]]:
    """Returns lines with the d-BLEU of two models at every length, and their difference in thirds of the longest."""
    lines = []
    tested = ways_in(found, TEST)
    for way in [*tested, *ways_in(found, LONG)]:
        if difference := difference_of(found, arm, way, base):
            cells = [_cell(found, model, way, base) for model in (base, arm)]
            lines.append([f"d-BLEU, {way.set_name}, {way.longest:,} tokens", *cells])
            if way == tested[-1]:
                thirds = zip(("shortest", "middle", "longest"), difference["thirds"], strict=False)
                lines += [[f"its {which} third", "", interval(third)] for which, third in thirds]
    return lines


def _names_beside(found: Found, arm: str, base: str) -> list[list[str]]:
    """Returns lines with the share of names that two models translate as the glossary says, by distance."""
    lines = []
    for way in ways_in(found, GLOSSARY)[-1:]:
        if difference_of(found, arm, way, base):
            distances = rows_of(found, way)[base][0]["glossary"]
            cells = (_name_cells(found, model, way, base) for model in (base, arm))
            for own, *shares in zip(distances, *cells, strict=True):
                lines.append([f"names, {Bucket(own['shortest'], own['longest'])}, %", *shares])
    return lines


def _costs(found: Found) -> list[str]:
    training, translation = cost_rows(found, TRAINING), cost_rows(found, TRANSLATION)
    if not training:
        return []
    asked, machines = found["costs"]["asked"], found["costs"]["machines"]
    parts = [
        "## Time and memory",
        "Of the trained models, on random tokens: all documents have the same length and are translated into as many "
        f"tokens, by fairseq's own search. Training in {asked['precision']}, translation in "
        f"{asked['translation_precision']}; {'; '.join(machines)}; threads: {asked['threads']}. Brackets hold "
        "multiples of the Transformer's in the same run; those of training are of the one with torch's fused "
        "attention in cross-attention too, where fairseq's own has an explicit softmax. The models take turns in "
        "training; each translates once.",
        "Training, target tokens per second:",
        _cost_table(found, training, "tokens_per_second", 1.0, ",.0f"),
        "Peak memory of a training step in MB, as torch allocates it beyond weights and Adam's means:",
        _cost_table(found, training, "peak_bytes", 1e-6, ",.0f"),
    ]
    if translation:
        counts = [f"{next(iter(rows.values()))['documents']} × {length:,}" for length, rows in translation.items()]
        parts += [
            f"Translation with beam {asked['beam']}, seconds ({', '.join(counts)} tokens):",
            _cost_table(found, translation, "seconds", 1.0, ",.1f"),
            "Peak memory of translation in MB beyond the model, of the process or, on a GPU, as torch allocates it:",
            _cost_table(found, translation, "peak_bytes", 1e-6, ",.0f"),
        ]
    return parts


def _cost_table(found: Found, rows: dict[int, dict[str, Found]], name: str, unit: float, form: str) -> str:
    """Returns a table of a cost, with a column for each length."""

    def cell(own: Found | None) -> str:
        if own is None:
            return UNKNOWN
        if own[name] is None:
            return own["note"] or UNKNOWN
        base = own["base"].get(name)
        return f"{own[name] * unit:{form}}" + (f" ({own[name] / base:.2f})" if base else "")

    arms = dict.fromkeys(arm for own in rows.values() for arm in own)
    lines = [[label(found, arm), *(cell(own.get(arm)) for own in rows.values())] for arm in arms]
    return table(["Model", *(f"{length:,} tokens" for length in rows)], lines)


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
    lines = "\n".join(found["commands"])
    parts = ["## Commands", f"```\n{lines}\n```", "From its folder, this trains the same models:"]
    first: dict[str, Found] = {}
    for row in found["trainings"]:
        if "command" in row:
            first.setdefault(row["arm"], row)
    parts += [f"{label(found, arm)}:\n\n```\n{shlex.join(row['command'])}\n```" for arm, row in first.items()]
    return parts
