"""The report's tables of scores: quality, by length and by place, and sentences that are missing or repeated."""

from collections.abc import Callable

import numpy

from linformer_fairseq.cli.tables import UNKNOWN, table
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.recipe.merging import Found

from .cells import each_seed, number, score_cell
from .found import difference_of, is_of, label, mean, rows_of, ways_in
from .sets import LONG, TEST, VALID
from .translate import FORCED, FREE, Way

_ALIGNED = (
    "A sentence's translation is the one with the same number, where all sentences begin with their numbers, and "
    "otherwise the one in the same place."
)


def quality(found: Found) -> list[str]:
    """Returns the section on d-BLEU and other scores of every set."""
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
            arms = rows_of(found, ways[-1])
            lines = [[label(found, arm), *(score_cell(found, arm, way) for way in ways)] for arm in arms]
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
            scores = [number(mean(rows, score), ".2f") for score in ("d_bleu", "s_bleu", "chrf")]
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
    return each_seed(
        found,
        rows_of(found, ways[0]),
        [f"{way.set_name}, {way.longest:,} tokens" for way in ways],
        lambda row: [number(scores.get((row["arm"], row["seed"], way)), ".2f") for way in ways],
    )


def by_length(found: Found) -> list[str]:
    """Returns the section on d-BLEU in documents of several lengths."""
    parts = []
    for name, what in ((TEST, "The test set"), (LONG, "The test set with documents that follow each other as one")):
        if ways := ways_in(found, name):
            parts += [f"{what}, cut at {ways[-1].longest:,} tokens:", _bucket_table(found, ways[-1], "by_length", str)]
    return ["## d-BLEU by the length of the document", *parts] if parts else []


def by_position(found: Found) -> list[str]:
    """Returns the section on BLEU in several places of a document; nothing where sentences cannot be aligned."""
    ways = ways_in(found, TEST)
    shown = _bucket_table(found, ways[-1], "by_position", _sentences) if ways else ""
    return ["## BLEU by the place of the sentence in its document", shown, _ALIGNED] if shown else []


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


def _sentences(bucket: Bucket) -> str:
    return f"{bucket.shortest} and later" if bucket.longest is None else f"{bucket.shortest} to {bucket.longest}"


def completeness(found: Found) -> list[str]:
    """Returns the section on what a translation leaves out, displaces or repeats."""
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
                number(mean(rows, "d_bleu"), ".2f"),
                number(mean(rows, "length_ratio"), ".3f"),
                number(_percent(mean(rows, "missing")), ".1f"),
                number(_percent(mean(rows, "displaced")), ".1f"),
                number(_percent(mean(rows, "repeated")), ".1f"),
                number(mean(rows, "halved"), ".0f"),
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
