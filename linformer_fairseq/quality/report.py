"""The study as Markdown and as JSON."""

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy

from linformer_fairseq.benchmark.report import UNKNOWN, table
from linformer_fairseq.cli.machine import describe_machine
from linformer_fairseq.length_buckets import Bucket, buckets
from linformer_fairseq.recipe.settings import Text, Translation
from linformer_fairseq.spectrum.plots import TITLES

from .arguments import Study
from .results import Difference, Result, difference, gains
from .variants import BASELINE, VARIANTS

Group = tuple[str, int]
"""A variant's name and k, 0 for the baseline: what a row is about, all of its seeds together."""


def groups(results: Sequence[Result]) -> dict[Group, list[Result]]:
    """The seeds of every variant and k, in the order of the variants."""
    order = list(VARIANTS)

    def group(result: Result) -> Group:
        return result.training.variant.name, result.training.model.k

    ordered = sorted(results, key=lambda result: (order.index(group(result)[0]), group(result)[1]))
    return {key: list(own) for key, own in groupby(ordered, group)}


def name(group: Group) -> str:
    """As the report calls it."""
    return f"{group[0]}, k = {group[1]}" if group[1] else group[0]


def by_k(k: int) -> list[Bucket]:
    """Up to as many tokens as slots, up to twice as many, and more."""
    return buckets((k, 2 * k))


def differences(found: dict[Group, list[Result]]) -> dict[Group, Difference]:
    """Of every group but the baseline's; none where that is missing."""
    baseline = found.get((BASELINE, 0))
    if baseline is None:
        return {}
    return {group: difference(baseline, own) for group, own in found.items() if group[1]}


def report_text(study: Study, results: dict[str, list[Result]], pictures: dict[str, str]) -> str:
    """All of it.

    Args:
        results: of every subset.
        pictures: files by what they show.
    """
    settings = study.settings
    training, translation = settings.training, settings.translation
    parts = [
        "# Quality against k",
        f"{_text(settings.text)}. {describe_machine()}.",
        f"    {study.command}",
        f"Every model was trained for {training.epochs} epochs with the same settings, in {training.precision}, with "
        f"the seed{'s' * (len(study.seeds) > 1)} {', '.join(map(str, study.seeds))}, and translated with "
        f"{_checkpoint(translation)} and beam {translation.beam}. Means over seeds; behind a mean in brackets its "
        "seeds. BLEU is sacreBLEU's. A difference is that of means over seeds, with its 95 % interval from a paired "
        "bootstrap over sentences (Koehn, 2004), which knows nothing of how much seeds vary.",
        "Variants: " + "; ".join(f"*{variant.name}*: {variant.what}" for variant in study.variants) + ".",
    ]
    for subset, own in results.items():
        found = groups(own)
        if not found:
            continue
        parts += [f"## The {subset} set", _overview(found)]
        for k in sorted({group[1] for group in found} - {0}):
            parts += [f"BLEU by the length n of the source, k = {k}:", _by_length(found, k)]
    parts += ["## Entropy of attention", *_entropies(next(iter(results.values())))]
    if pictures:
        parts += ["## Plots", *(f"![{what}]({file})" for what, file in pictures.items())]
    return "\n\n".join(parts) + "\n"


def _text(text: Text) -> str:
    return f"{text.dataset.name}, {text.source_lang} to {text.target_lang}"


def _checkpoint(translation: Translation) -> str:
    return f"the mean of its last {translation.average} saves" if translation.average else "its best save"


def facts(study: Study, results: dict[str, list[Result]]) -> dict[str, Any]:
    """What was found, as numbers."""
    return {
        "command": study.command,
        "machine": describe_machine(),
        "results": [
            {
                "variant": result.training.variant.name,
                "k": result.training.model.k or None,
                "seed": result.training.seed,
                "subset": subset,
                "perplexity": result.perplexity,
                "bleu": round(result.bleu(), 2),
                "length_ratio": round(result.length_ratio(), 3),
                "entropy": result.entropy,
                "by_length": [
                    {
                        "shortest": bucket.shortest,
                        "longest": bucket.longest,
                        "sentences": int(chosen.sum()),
                        "bleu": round(result.bleu(chosen), 2),
                        "length_ratio": round(result.length_ratio(chosen), 3),
                    }
                    for k in study.ks
                    for bucket in by_k(k)
                    if (chosen := result.subset.within(bucket)).any()
                ],
            }
            for subset, own in results.items()
            for result in own
        ],
    }


def _overview(found: dict[Group, list[Result]]) -> str:
    differ = differences(found)
    rows = []
    for group, own in found.items():
        rows.append(
            [
                name(group),
                str(len(own)),
                _seeds([result.perplexity for result in own], 2),
                _seeds([result.bleu() for result in own], 1),
                _difference(differ.get(group)),
                _seeds([result.length_ratio() for result in own], 3),
            ]
        )
    headers = ["Model", "Seeds", "Perplexity (valid)", "BLEU", "Against the baseline", "Length ratio"]
    return table(headers, rows)


def _by_length(found: dict[Group, list[Result]], k: int) -> str:
    own_groups = {group: own for group, own in found.items() if group[1] in (0, k)}
    subset = next(iter(own_groups.values()))[0].subset
    lengths = [bucket for bucket in by_k(k) if subset.within(bucket).any()]
    baseline = own_groups.get((BASELINE, 0))
    rows = []
    for group, own in own_groups.items():
        row = [name(group)]
        for bucket in lengths:
            chosen = subset.within(bucket)
            bleu = _mean([result.bleu(chosen) for result in own])
            ratio = _mean([result.length_ratio(chosen) for result in own])
            gained = f" ({_mean(gains(own, baseline, chosen)):+.1f})" if baseline and group[1] else ""
            row.append(f"{bleu:.1f}{gained} · {ratio:.2f}")
        rows.append(row)
    headers = [f"{bucket} ({int(subset.within(bucket).sum()):,})" for bucket in lengths]
    return table(["Model", *headers], rows) + "\n\nBLEU (its difference from the baseline's) · length ratio."


def _entropies(results: Sequence[Result]) -> list[str]:
    rows = []
    for group, own in groups(results).items():
        cells = [_mean([r.entropy[place] for r in own]) if place in own[0].entropy else None for place in TITLES]
        rows.append([name(group), *(UNKNOWN if cell is None else f"{cell:.2f}" for cell in cells)])
    return [
        table(["Model", *TITLES.values()], rows),
        "Nats, of the rows of the maps over tokens, the mean over layers, heads and sentences. Where learned "
        "projections give negative weights, of the shares in the sum of absolute weights.",
    ]


def _seeds(values: Sequence[float], digits: int) -> str:
    """The mean, and what it is the mean of."""
    each = ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{_mean(values):.{digits}f}" + (f" ({each})" if len(values) > 1 else "")


def _difference(found: Difference | None) -> str:
    return UNKNOWN if found is None else f"{found.mean:+.2f} [{found.low:+.2f}, {found.high:+.2f}]"


def _mean(values: Sequence[float]) -> float:
    return float(numpy.mean(values))
