#!/usr/bin/env python3
"""Draws the README's picture of quality and speed on documents, and prints the table below it.

usage: .venv/bin/python scripts/readme_picture.py [--results FILE] [--out PNG]

FILE is the results.json that `python -m linformer_fairseq.documents` writes.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from linformer_fairseq.cli.main import quiet_libraries

quiet_libraries()  # before matplotlib, which logs its import

# ruff: noqa: E402
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from linformer_fairseq.cli.figures import BASELINE_STYLE, save
from linformer_fairseq.cli.tables import UNKNOWN
from linformer_fairseq.cli.tables import table as markdown
from linformer_fairseq.documents.arms import SENTENCES, TRANSFORMER
from linformer_fairseq.documents.costs import BASELINES, TRAINING, TRANSLATION
from linformer_fairseq.documents.found import Found, cost_rows, difference_of, label, mean, rows_of, ways_in
from linformer_fairseq.documents.merge import read_results
from linformer_fairseq.documents.sets import LONG, TEST
from linformer_fairseq.documents.translate import Way

DOCS = Path(__file__).parents[1] / "docs"
RESULTS = DOCS / "documents" / "made" / "results.json"
PICTURE = DOCS / "overview.png"
STYLES = {
    "two-level": ("C0", "s"),
    "two-level-all": ("C2", "^"),
    "linformer": ("C3", "o"),
    "linformer-all": ("C1", "v"),
    "window": ("C4", "d"),
    SENTENCES.name: ("C7", "."),
}
"""Colour and marker of the models that are shown."""


def ways(found: Found) -> list[Way]:
    """The test set at every length that models are trained to, and with documents in a row at those beyond."""
    tested = ways_in(found, TEST)
    return tested + [way for way in ways_in(found, LONG) if way.longest > tested[-1].longest]


def shown(found: Found) -> list[str]:
    return [arm for arm in STYLES if arm in found["arms"]]


def table(found: Found) -> str:
    """The README's table, as Markdown: a column for each model."""
    arms = [TRANSFORMER, *shown(found)]
    rows = []
    for way in ways(found):
        cells = []
        for arm in arms:
            difference, own = difference_of(found, arm, way), rows_of(found, way).get(arm)
            if difference:
                cells.append(f"{difference['mean']:+.1f} [{difference['low']:+.1f}, {difference['high']:+.1f}]")
            else:
                cells.append(f"{mean(own, 'd_bleu'):.1f}" if own else UNKNOWN)
        rows.append([f"d-BLEU, {way.longest:,} tokens", *cells])
    for part, name, unit, scale, what in (
        (TRAINING, "tokens_per_second", "tokens/s", 1.0, "training speed"),
        (TRAINING, "peak_bytes", "MB", 1e-6, "training memory"),
        (TRANSLATION, "seconds", "s", 1.0, "translation time"),
    ):
        for length, own in cost_rows(found, part).items():
            base = own[BASELINES[part]][name]
            cells = [_multiple(own.get(arm), name) for arm in arms[1:]]
            rows.append([f"{what}, {length:,} tokens", f"{scale * base:,.0f} {unit}", *cells])
    return markdown(["", *(label(found, arm) for arm in arms)], rows)


def _multiple(row: Found | None, name: str) -> str:
    """How many times as much as the Transformer's, where both were measured."""
    if row is None or row[name] is None or row["base"].get(name) is None:
        return UNKNOWN
    return f"{row[name] / row['base'][name]:.2f}"


def draw(found: Found, path: Path) -> None:
    """Writes the picture: quality on the left, speed of training on the right, both against length."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    _draw_quality(left, found)
    _draw_speed(right, found)
    handles = {
        text: handle for axes in (left, right) for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=4, fontsize="small")
    save(figure, path)


def _style(arm: str) -> dict[str, str]:
    colour, marker = STYLES[arm]
    return {"color": colour, "marker": marker}


def _draw_quality(axes: Axes, found: Found) -> None:
    every = ways(found)
    places = range(len(every))
    for arm in (TRANSFORMER, *shown(found)):
        style = BASELINE_STYLE if arm == TRANSFORMER else _style(arm)
        points = [(place, rows_of(found, way).get(arm)) for place, way in zip(places, every, strict=True)]
        points = [(place, mean(rows, "d_bleu")) for place, rows in points if rows]
        axes.plot(*zip(*points, strict=True), label=label(found, arm), **style)
    axes.set_xticks(places, [f"{way.longest:,}" for way in every])
    axes.set(title="Quality of whole documents", xlabel="tokens at which documents are cut", ylabel="d-BLEU")
    axes.grid(alpha=0.3)


def _draw_speed(axes: Axes, found: Found) -> None:
    costs = cost_rows(found, TRAINING)
    for arm in shown(found):
        points = [
            (length, own[arm]["tokens_per_second"] / own[arm]["base"]["tokens_per_second"])
            for length, own in costs.items()
            if arm in own
        ]
        if points:
            axes.plot(*zip(*points, strict=True), label=label(found, arm), **_style(arm))
    axes.axhline(1, **BASELINE_STYLE, label=label(found, TRANSFORMER))
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(costs), [f"{length:,}" for length in costs])
    axes.set_xticks([], minor=True)
    axes.set(title="Speed of training", xlabel="tokens of a document", ylabel="times full attention (fused)")
    axes.grid(alpha=0.3)


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
