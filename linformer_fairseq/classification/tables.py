"""The report's tables."""

import statistics
from collections.abc import Collection

from linformer_fairseq.cli.tables import UNKNOWN, table, with_deviation, with_interval
from linformer_fairseq.recipe.logs import best_update
from linformer_fairseq.recipe.merging import Found

from .arguments import ACCURACY, METRICS
from .sets import DEV, SPLITS, TEST


def label(found: Found, arm: str) -> str:
    """Returns what tables call a model."""
    return str(found["arms"][arm]["label"])


def rows_of(found: Found, name: str, arm: str) -> list[Found]:
    """Returns the trainings of a model on a set, by seed."""
    rows = [row for row in found["trainings"] if (row["set"], row["arm"]) == (name, arm)]
    return sorted(rows, key=lambda row: row["seed"])


def quality(found: Found) -> list[str]:
    """Returns the sections on the test sets: a table as the paper's Table 2, one of differences, and the other
    metrics."""
    parts = [
        "## Accuracy",
        "Texts of the test set that are classified as they are labelled, in per cent: mean and standard deviation over "
        "seeds (Wang et al., 2020, Table 2). Where a model was pretrained with several seeds, too, theirs is in it "
        "(Trainings, below).",
        _means(found, TEST, ACCURACY),
        *_of_common_seeds(found),
        *_differences(found),
        "The dev set, on which the best epoch of each training was chosen:",
        _means(found, DEV, ACCURACY),
    ]
    for metric in found["metrics"]:
        if metric != ACCURACY:
            parts += [f"## {METRICS[metric]}", _explained(metric), _means(found, TEST, metric)]
    return parts


def _seeds(found: Found) -> list[set[int]]:
    """Returns the seeds of every model on every set that it was trained on."""
    own: dict[tuple[str, str], set[int]] = {}
    for row in found["trainings"]:
        own.setdefault((row["set"], row["arm"]), set()).add(row["seed"])
    return list(own.values())


def uneven(found: Found) -> bool:
    """Returns whether models differ in the seeds that they have."""
    seeds = _seeds(found)
    return seeds.count(seeds[0]) < len(seeds)


def _of_common_seeds(found: Found) -> list[str]:
    """Returns the same table for the seeds that all models have, where some have more than others."""
    common = sorted(set.intersection(*_seeds(found)))
    if not (uneven(found) and common):
        return []
    which = f"Seed {common[0]} alone" if len(common) == 1 else f"Seeds {', '.join(map(str, common))} alone"
    return [
        f"{which}, by which models with fewer seeds are to be compared:",
        _means(found, TEST, ACCURACY, common),
    ]


def _explained(metric: str) -> str:
    if metric == "f1":
        return (
            "The test set, in points of 100: F1 of the second label of sets that have two, in alphabetical order, and "
            "the mean over the labels of the others."
        )
    return "The test set, in points of 100."


def _means(found: Found, split: str, metric: str, seeds: Collection[int] | None = None) -> str:
    """Returns a table of a metric with a column for each set, and their mean where a model has all of several.

    Args:
        seeds: those that count; None for all.
    """
    sets = list(found["sets"])
    several = len(sets) > 1
    lines = []
    for arm in found["arms"]:
        values = [
            [row[split][metric] for row in rows_of(found, name, arm) if seeds is None or row["seed"] in seeds]
            for name in sets
        ]
        mean = [f"{statistics.mean(map(statistics.mean, values)):.2f}" if all(values) else UNKNOWN] * several
        lines.append([label(found, arm), *map(with_deviation, values), *mean])
    return table(["Model", *sets, *["Mean"] * several], lines)


def _differences(found: Found) -> list[str]:
    by_model = {(row["set"], row["arm"]): row for row in found["differences"]}
    if not by_model:
        return []
    lines = []
    for arm in found["arms"]:
        own = [by_model.get((name, arm)) for name in found["sets"]]
        if any(own):
            cells = [with_interval(row["mean"], row["low"], row["high"]) if row else UNKNOWN for row in own]
            lines.append([label(found, arm), *cells])
    return [
        "In points, how far models are from the Transformer, over the seeds that both have. Behind it stands the 95 % "
        "interval of a paired bootstrap over the texts of the test set (Koehn, 2004), which knows nothing of how much "
        "seeds vary.",
        table(["Model", *found["sets"]], lines),
    ]


def sets(found: Found) -> list[str]:
    """Returns the section on the sets: texts, lengths, and the share of texts that were cut."""
    lines = []
    for name, own in found["sets"].items():
        for split in SPLITS:
            facts = own[split]
            lines.append(
                [
                    name,
                    split,
                    f"{facts['texts']:,}",
                    str(len(own["labels"])),
                    f"{facts['mean']:,.1f}",
                    f"{facts['longest']:,}",
                    f"{facts['cut'] / facts['texts']:.1%}",
                ]
            )
    headers = ["Set", "Split", "Texts", "Labels", "Mean length", "Longest", "Cut"]
    return [
        "## Sets",
        "Lengths are in tokens before texts were cut, with the symbols before and after the text. Of a text that was "
        "cut the beginning is kept.",
        table(headers, lines),
    ]


def trainings(found: Found) -> list[str]:
    """Returns the section on the trainings: time, and what each began with."""
    lines = []
    for name in found["sets"]:
        for arm in found["arms"]:
            for row in rows_of(found, name, arm):
                lines.append(
                    [
                        label(found, arm),
                        name,
                        str(row["seed"]),
                        str(row["pretraining_seed"]),
                        f"{row['parameters']:,}",
                        f"{row['updates']:,}",
                        f"{best_update(row['curve'], lowest=False):,}",
                        f"{1000 * row['seconds'] / row['updates']:,.0f}" if row["seconds"] else UNKNOWN,
                        f"{row['jobs']} × {row['threads']}",
                    ]
                )
    headers = ["Model", "Set", "Seed", "Pretraining's", "Parameters", "Updates", "Best", "ms", "Trainings × threads"]
    return [
        "## Trainings",
        "A training begins with the pretrained model of the same seed where there is one, and otherwise with that of "
        "the first seed. The best update is that at whose end the accuracy on dev was highest. Milliseconds are those "
        "of an update, without validation and saving.",
        table(headers, lines),
    ]


def models(found: Found) -> list[str]:
    """Returns the section on what the models are."""
    lines = [
        [own["label"], own["what"], f"`{own['flags']}`" if own["flags"] else UNKNOWN] for own in found["arms"].values()
    ]
    return ["## Models", table(["Model", "What it is", "Flags"], lines)]
