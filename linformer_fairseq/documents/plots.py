"""Pictures of the study, from what results.json holds."""

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy
from matplotlib import pyplot as plt

from linformer_fairseq.benchmark.plots import BASELINE, COLOURS, MARKERS, Panel, Style, draw
from linformer_fairseq.cli.figures import save

from . import report
from .arms import TRANSFORMER
from .costs import TRAINING, TRANSLATION
from .sets import GLOSSARY, TEST

QUALITY_AND_SPEED, COSTS, GLOSSARIES = "quality-and-speed.png", "costs.png", "glossaries.png"


def write_plots(found: dict[str, Any], out: Path) -> dict[str, str]:
    """Draws what there is to draw, and returns the files by what they show."""
    pictures = {}
    styles = _styles(found)
    if report.cost_rows(found, TRAINING):
        _costs(found, styles, out / COSTS)
        pictures["Speed of training and time of translation against length"] = COSTS
        if report.ways_of(found, TEST):
            _quality_and_speed(found, styles, out / QUALITY_AND_SPEED)
            pictures["Quality and speed of training together"] = QUALITY_AND_SPEED
    if report.ways_of(found, GLOSSARY):
        _glossaries(found, styles, out / GLOSSARIES)
        pictures["Names translated as their glossary says"] = GLOSSARIES
    return pictures


def _styles(found: dict[str, Any]) -> dict[str, Style]:
    """Returns a style for each model, by label."""
    others = [own["label"] for name, own in found["arms"].items() if name != TRANSFORMER]
    styles: dict[str, Style] = {
        name: {"marker": marker, "color": colour}
        for name, marker, colour in zip(others, cycle(MARKERS), cycle(COLOURS[::2]), strict=False)
    }
    return {report.label(found, TRANSFORMER): BASELINE, **styles} if TRANSFORMER in found["arms"] else styles


def _costs(found: dict[str, Any], styles: dict[str, Style], path: Path) -> None:
    panels = []
    for part, title, name, unit in (
        (TRAINING, "training", "tokens_per_second", "target tokens per second"),
        (TRANSLATION, "translation of as many documents", "seconds", "seconds"),
    ):
        points = [
            (report.label(found, arm), length, row[name])
            for length, rows in report.cost_rows(found, part).items()
            for arm, row in rows.items()
        ]
        panels.append(Panel(title, "tokens per document", unit, points))
    draw(path, panels, styles, (10.5, 4.8), columns=4)


def _quality_and_speed(found: dict[str, Any], styles: dict[str, Style], path: Path) -> None:
    """Draws, a panel for each length, d-BLEU against the Transformer's over the speed of training against its."""
    costs = report.cost_rows(found, TRAINING)
    ways = [way for way in report.ways_of(found, TEST) if TRANSFORMER in costs.get(way[1], {})]
    figure, grid = plt.subplots(
        1, len(ways), figsize=(4.6 * len(ways), 4.6), layout="constrained", squeeze=False, sharey=True
    )
    for axes, way in zip(grid[0], ways, strict=True):
        base = costs[way[1]][TRANSFORMER]["tokens_per_second"]
        for arm, row in costs[way[1]].items():
            difference, speed = report.difference_of(found, arm, way), row["tokens_per_second"]
            if difference and speed:
                spread = [[difference["mean"] - difference["low"]], [difference["high"] - difference["mean"]]]
                name = report.label(found, arm)
                style = {**styles[name], "linestyle": "none", "capsize": 3}
                axes.errorbar([speed / base], [difference["mean"]], yerr=numpy.abs(spread), label=name, **style)
        axes.axhline(0, color="black", linestyle="--", linewidth=1)
        axes.axvline(1, color="black", linestyle="--", linewidth=1)
        axes.set_title(f"{way[1]:,} tokens", fontsize=11)
        axes.set(xlabel="training speed, times the Transformer's")
        axes.grid(alpha=0.3)
    grid[0][0].set_ylabel("d-BLEU against the Transformer's")
    handles, names = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=4, fontsize="small")
    save(figure, path)


def _glossaries(found: dict[str, Any], styles: dict[str, Style], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
    for arm, rows in report.rows_of(found, report.ways_of(found, GLOSSARY)[-1]).items():
        name = report.label(found, arm)
        shares = 100 * numpy.mean([[own["score"] for own in row["glossary"]] for row in rows], axis=0)
        ranges = [str(report.Bucket(own["shortest"], own["longest"])) for own in rows[0]["glossary"]]
        axes.plot(range(len(ranges)), shares, label=name, **styles[name])
    axes.set_xticks(range(len(ranges)), ranges, fontsize="small")
    axes.set(xlabel="from the glossary to the sentence", ylabel="names translated as it says, %")
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small", ncols=2)
    save(figure, path)
