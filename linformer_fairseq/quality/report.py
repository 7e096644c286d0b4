"""The study as Markdown, from what results.json holds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from linformer_fairseq.cli.tables import UNKNOWN, table, with_interval
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.spectrum.plots import TITLES

from .results import by_k
from .variants import BASELINE, FORMER, VARIANTS, Description

Variants = Mapping[str, Description]
"""What the results say that the variants were, by name."""
Row = dict[str, Any]
"""A finished training and its translation of a subset, an entry of "results"."""
Group = tuple[str, int]
"""A variant's name and k (0 for the baseline): all of its seeds share a row of the report."""


def variants_of(found: dict[str, Any]) -> Variants:
    """Returns what the variants of results were when these were stored."""
    if "variants" not in found:
        return FORMER
    return {name: Description(**description) for name, description in found["variants"].items()}


def groups(rows: Sequence[Row]) -> dict[Group, list[Row]]:
    """Returns the seeds of every variant and k, in the order of the variants and of k."""
    order = {name: place for place, name in enumerate(VARIANTS)}
    found: dict[Group, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (order.get(row["variant"], len(order)), row["k"] or 0)):
        found.setdefault((row["variant"], row["k"] or 0), []).append(row)
    return found


def in_bucket(row: Row, bucket: Bucket) -> dict[str, Any] | None:
    """Returns the scores of a training on the sentences in a bucket; None where there are none."""
    bounds = (bucket.shortest, bucket.longest)
    return next((own for own in row["by_length"] if (own["shortest"], own["longest"]) == bounds), None)


def gains(own: Sequence[Row], baseline: Sequence[Row], bucket: Bucket) -> list[float]:
    """Returns, for each seed, its BLEU on a bucket minus the mean of the baseline's."""
    mean = _mean([in_bucket(row, bucket)["bleu"] for row in baseline])
    return [in_bucket(row, bucket)["bleu"] - mean for row in own]


def report_text(found: dict[str, Any], pictures: dict[str, str]) -> str:
    """Returns the whole report.

    Args:
        found: what `results.findings` returns.
        pictures: files by what they show.
    """
    translates = f"the mean of its last {found['average']} saves" if found["average"] else "its best save"
    epochs = f"{found['epochs']} epoch{'s' * (found['epochs'] > 1)}"
    trained, variants = groups(found["results"]), variants_of(found)
    parts = [
        "# Quality against k",
        f"{found['text']}. {found['machine']}.",
        f"    {found['command']}",
        f"Every model was trained for {epochs} with the same settings, in {found['precision']}, and translated with "
        f"{translates} and beam {found['beam']}. {_seeds_sentence(found)} BLEU is sacreBLEU's.",
    ]
    shown = [variants[name] for name in dict.fromkeys(name for name, _ in trained)]
    if explained := [f"*{variant.label}*: {variant.what}" for variant in shown if variant.what]:
        parts.append(f"Models: {'; '.join(explained)}.")
    for subset in dict.fromkeys(row["subset"] for row in found["results"]):
        own = groups([row for row in found["results"] if row["subset"] == subset])
        differences = {(row["variant"], row["k"]): row for row in found["differences"] if row["subset"] == subset}
        parts += [f"## The {subset} set", _overview(own, differences, variants)]
        for k in sorted({k for _, k in own} - {0}):
            parts += [f"BLEU by the length n of the source, k = {k}:", _by_length(own, k, variants)]
    parts += ["## Entropy of attention", *_entropies(trained, variants)]
    if flags := [[variant.label, f"`{variant.flags}`"] for variant in shown if variant.flags]:
        parts += ["## Flags", table(["Model", "Flags"], flags)]
    if pictures:
        parts += ["## Plots", *(f"![{what}]({file})" for what, file in pictures.items())]
    return "\n\n".join(parts) + "\n"


def _seeds_sentence(found: dict[str, Any]) -> str:
    seeds = sorted({row["seed"] for row in found["results"]})
    bootstrap = "the 95 % interval of a paired bootstrap over sentences (Koehn, 2004)"
    if len(seeds) == 1:
        return (
            f"Each has one seed ({seeds[0]}). Behind a difference in BLEU stands {bootstrap}: it knows nothing of "
            "seeds, and another seed alone moves BLEU by as much."
        )
    return (
        f"There are {len(seeds)} seeds ({', '.join(map(str, seeds))}); values are means over them, with each seed's in "
        f"brackets. Behind a difference of two means stands {bootstrap}, which knows nothing of how much seeds vary."
    )


def _label(group: Group, variants: Variants) -> str:
    name, k = group
    return f"{variants[name].label}, k = {k}" if k else variants[name].label


def _overview(found: dict[Group, list[Row]], differences: dict[Group, dict[str, Any]], variants: Variants) -> str:
    rows = [
        [
            _label(group, variants),
            str(len(own)),
            _seeds([row["perplexity"] for row in own], 2),
            _seeds([row["bleu"] for row in own], 1),
            _difference(differences.get(group)),
            _seeds([row["length_ratio"] for row in own], 3),
        ]
        for group, own in found.items()
    ]
    headers = ["Model", "Seeds", "Perplexity (valid)", "BLEU", "Against the Transformer", "Length ratio"]
    return table(headers, rows)


def _by_length(found: dict[Group, list[Row]], k: int, variants: Variants) -> str:
    found = {group: own for group, own in found.items() if group[1] in (0, k)}
    baseline = found.get((BASELINE, 0))
    one = next(iter(found.values()))[0]
    sizes = {bucket: own["sentences"] for bucket in by_k(k) if (own := in_bucket(one, bucket))}
    rows = []
    for group, own in found.items():
        cells = [_label(group, variants)]
        for bucket in sizes:
            scores = [in_bucket(row, bucket) for row in own]
            bleu, ratio = (_mean([score[name] for score in scores]) for name in ("bleu", "length_ratio"))
            gained = f" ({_mean(gains(own, baseline, bucket)):+.1f})" if baseline and group[1] else ""
            cells.append(f"{bleu:.1f}{gained} · {ratio:.2f}")
        rows.append(cells)
    headers = [f"{bucket} ({size:,})" for bucket, size in sizes.items()]
    return table(["Model", *headers], rows) + "\n\nBLEU (its difference from the Transformer's) · length ratio."


def _entropies(found: dict[Group, list[Row]], variants: Variants) -> list[str]:
    rows = []
    for group, own in found.items():
        seeds = list({row["seed"]: row["entropy"] for row in own}.values())  # they are the same for each subset
        cells = [[entropy[place] for entropy in seeds if place in entropy] for place in TITLES]
        rows.append([_label(group, variants), *(f"{_mean(cell):.2f}" if cell else UNKNOWN for cell in cells)])
    return [
        table(["Model", *TITLES.values()], rows),
        "In nats: the entropy of each row of the maps over tokens, averaged over layers, heads and sentences. Where "
        "learned projections give tokens negative weights, it is that of the shares in the sum of absolute weights.",
    ]


def _seeds(values: Sequence[float], digits: int) -> str:
    """Returns the mean, and in brackets what it is the mean of."""
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{_mean(values):.{digits}f}" + (f" ({each})" if len(values) > 1 else "")


def _difference(found: dict[str, Any] | None) -> str:
    return UNKNOWN if found is None else with_interval(found["mean"], found["low"], found["high"])


def _mean(values: Sequence[float]) -> float:
    return float(numpy.mean(values))
