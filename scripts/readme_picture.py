#!/usr/bin/env python3
"""Draws the README's picture of quality and speed on documents, and prints the table below it.

usage: .venv/bin/python scripts/readme_picture.py [--results FILE] [--out PNG]

FILE is the results.json that `python -m linformer_fairseq.documents` writes, with time and memory.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from linformer_fairseq.cli.main import quiet_libraries

quiet_libraries()  # before matplotlib, which logs its import

# ruff: noqa: E402
from matplotlib import pyplot as plt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from linformer_fairseq.cli.figures import BASELINE_STYLE, save
from linformer_fairseq.cli.tables import UNKNOWN
from linformer_fairseq.cli.tables import table as markdown
from linformer_fairseq.documents.arms import FUSED, TRANSFORMER
from linformer_fairseq.documents.costs import TRAINING, TRANSLATION
from linformer_fairseq.documents.found import (
    Found,
    cost_rows,
    difference_of,
    glossary_means,
    interval,
    interval_in_points,
    label,
    mean,
    rows_of,
    ways_in,
)
from linformer_fairseq.documents.merge import read_results
from linformer_fairseq.documents.sets import GLOSSARY, LONG, TEST
from linformer_fairseq.documents.translate import Way

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "documents" / "made" / "results.json"
PICTURE = DOCS / "overview.png"
FULL = {FUSED.name: "full attention, fused", TRANSFORMER: "full attention, fairseq's"}
"""The Transformer, which translates alike with torch's fused attention and with fairseq's own."""
STYLES = {
    "two-level": ("C0", "s"),
    "two-level-all": ("C2", "^"),
    "transformer-convolution": ("C8", "*"),
    "two-level-convolution": ("C6", "X"),
    "linformer": ("C3", "o"),
    "linformer-all": ("C1", "v"),
    "window": ("C4", "D"),
    "nystromformer": ("C5", "P"),
}
"""Colour and marker of the models that are shown beside it."""
LINEAR = 5
"""d-BLEU up to which the scale of differences is linear; beyond, it is logarithmic, as some lose everything."""
MARKED = (-100, -50, -20, -10, -5, -2, -1, 0, 1, 2, 5, 10, 20, 50)
"""Differences that the scale names."""
AMOUNTS = (
    (TRAINING, "tokens_per_second", "training speed", 1.0, ",.0f", "tokens/s", 4),
    (TRANSLATION, "seconds", "translation time", 1.0, ",.1f", "s", 2),
    (TRAINING, "peak_bytes", "training memory", 1e-6, ",.0f", "MB", 2),
)
"""What the table tells of time and memory: its name in the results and in the table, its unit and form, and at how many
lengths, the longest ones."""


def shown(found: Found) -> list[str]:
    """Returns the models beside the Transformer."""
    return [arm for arm in STYLES if arm in found["arms"]]


def ways(found: Found) -> list[Way]:
    """Returns the test set at every length that models are trained to, and documents in a row at those beyond."""
    tested = ways_in(found, TEST)
    return tested + [way for way in ways_in(found, LONG) if way.longest > tested[-1].longest]


def table(found: Found) -> str:
    """Returns the README's table, as Markdown."""
    arms = shown(found)
    rows = []
    for way in ways(found):
        scores = {arm: mean(own, "d_bleu") for arm, own in rows_of(found, way).items()}
        differences = [interval(difference_of(found, arm, way)) for arm in arms]
        rows.append([f"d-BLEU, {way.longest:,} tokens", *[f"{scores[TRANSFORMER]:.2f}"] * len(FULL), *differences])
    rows += _names(found, arms)
    for part, name, what, unit, form, sign, count in AMOUNTS:
        for length, own in list(cost_rows(found, part).items())[-count:]:
            cells = [_amount(own.get(arm), name, f"{{:{form}}} {sign}", unit) for arm in (*FULL, *arms)]
            rows.append([f"{what}, {length:,} tokens", *cells])
    return markdown(["", *FULL.values(), *(label(found, arm) for arm in arms)], rows)


def _names(found: Found, arms: Sequence[str]) -> list[list[str]]:
    """Returns a row on the names of glossaries that stand the farthest back, in per cent; none without glossaries."""
    rows = []
    for way in ways_in(found, GLOSSARY)[-1:]:
        transformer = rows_of(found, way)[TRANSFORMER]
        farthest = transformer[0]["glossary"][-1]
        share = f"{100 * glossary_means(transformer)[-1]:.1f} %"
        differences = [difference_of(found, arm, way) for arm in arms]
        cells = [interval_in_points(own and own["glossary"][-1]) for own in differences]
        rows.append([f"names {farthest['shortest']:,} tokens back and more", *[share] * len(FULL), *cells])
    return rows


def _amount(row: Found | None, name: str, form: str, unit: float) -> str:
    """Returns the amount of the model that others are compared with, and of the others how many times as much."""
    if row is None or row[name] is None:
        return UNKNOWN
    base = row["base"].get(name)
    if base is None or row["base"]["arm"] == row["arm"]:
        return form.format(row[name] * unit)
    return f"{row[name] / base:.2f}"


def draw(found: Found, path: Path) -> None:
    """Writes the picture: quality on the left, speed of training on the right, both by the length of documents."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    _draw_quality(left, found)
    _draw_speed(right, found)
    handles: dict[str, Artist] = {}
    for axes in (left, right):  # the second has a line for a model where the first has error bars
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, fontsize="small")
    save(figure, path)


def _draw_quality(axes: Axes, found: Found) -> None:
    every = ways(found)
    for number, arm in enumerate(shown(found)):
        points = [(place, difference_of(found, arm, way)) for place, way in enumerate(every)]
        places, differences = zip(*((place, own) for place, own in points if own), strict=True)
        means = [own["mean"] for own in differences]
        errors = [[own["mean"] - own["low"] for own in differences], [own["high"] - own["mean"] for own in differences]]
        beside = [place + 0.1 * (number - (len(shown(found)) - 1) / 2) for place in places]
        axes.errorbar(
            beside, means, errors, **_style(arm), label=label(found, arm), linestyle="", capsize=3, markersize=5
        )
    axes.axhline(0, **BASELINE_STYLE, linewidth=1)
    low, high = axes.get_ylim()  # set again below, as ticks widen the axis to hold them all
    axes.set_yscale("symlog", linthresh=LINEAR, linscale=2)
    axes.set_yticks(MARKED, [f"{value:+}" if value else "0" for value in MARKED])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylim(1.4 * low, 1.4 * high)  # as much room as before on a scale that is logarithmic there
    axes.set_xticks(range(len(every)), [f"{way.longest:,}" for way in every])
    axes.set(title="Quality", xlabel="tokens of a document", ylabel="d-BLEU against the Transformer")
    axes.grid(alpha=0.3)


def _draw_speed(axes: Axes, found: Found) -> None:
    costs = cost_rows(found, TRAINING)
    for arm in (TRANSFORMER, *shown(found)):
        style = {"color": "C7", "linestyle": ":"} if arm == TRANSFORMER else {**_style(arm), "markersize": 5}
        name = "tokens_per_second"
        points = [(length, own[arm][name] / own[arm]["base"][name]) for length, own in costs.items() if arm in own]
        if points:
            axes.plot(*zip(*points, strict=True), label=FULL.get(arm) or label(found, arm), **style)
    axes.axhline(1, **BASELINE_STYLE, linewidth=1, label=FULL[FUSED.name])
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(costs), [f"{length:,}" for length in costs])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_ylim(bottom=0)
    axes.set(title="Speed", xlabel="tokens of a document", ylabel="training speed over that of fused attention")
    axes.grid(alpha=0.3)


def _style(arm: str) -> dict[str, str]:
    colour, marker = STYLES[arm]
    return {"color": colour, "marker": marker}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw the README's picture and print its table.")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help="results.json of the study")
    parser.add_argument("--out", type=Path, default=PICTURE, metavar="PNG", help="the picture to write")
    args = parser.parse_args(argv)
    found = read_results(args.results)
    draw(found, args.out)
    print(table(found))


if __name__ == "__main__":
    main()
