"""Pictures of the study, from what results.json holds."""

from itertools import cycle
from pathlib import Path

import numpy
from matplotlib import pyplot as plt

from linformer_fairseq.benchmark.plots import BASELINE, COLOURS, MARKERS, Panel, Style, draw
from linformer_fairseq.cli.figures import save
from linformer_fairseq.length_buckets import Bucket
from linformer_fairseq.recipe.merging import Found

from .arms import FUSED, TRANSFORMER
from .costs import TRAINING, TRANSLATION
from .found import cost_rows, difference_of, glossary_means, label, rows_of, ways_in
from .sets import GLOSSARY, TEST
from .translate import Way

QUALITY_AND_SPEED, COSTS, GLOSSARIES = "quality-and-speed.png", "costs.png", "glossaries.png"


def write_plots(found: Found, out: Path) -> dict[str, str]:
    """Draws what there is to draw, removes older pictures of anything else, and returns the files by what they show."""
    for name in (QUALITY_AND_SPEED, COSTS, GLOSSARIES):
        (out / name).unlink(missing_ok=True)
    pictures = {}
    styles, training = _styles(found), cost_rows(found, TRAINING)
    if training:
        _costs(found, styles, out / COSTS)
        pictures["Speed of training and time of translation against length"] = COSTS
    compared = {length for length, rows in training.items() if any(row["base"] for row in rows.values())}
    if ways := [way for way in ways_in(found, TEST) if way.longest in compared]:
        _quality_and_speed(found, ways, styles, out / QUALITY_AND_SPEED)
        pictures["Quality and speed of training together"] = QUALITY_AND_SPEED
    if ways := ways_in(found, GLOSSARY):
        _glossaries(found, ways[-1], styles, out / GLOSSARIES)
        pictures["Names translated as their glossary says"] = GLOSSARIES
    return pictures


def _styles(found: Found) -> dict[str, Style]:
    """Returns a style for each model, by label."""
    others = [own["label"] for name, own in found["arms"].items() if name != TRANSFORMER]
    styles: dict[str, Style] = {
        name: {"marker": marker, "color": colour}
        for name, marker, colour in zip(others, cycle(MARKERS), cycle(COLOURS[::2]), strict=False)
    }
    fused = {label(found, FUSED.name): {**BASELINE, "color": "grey"}}
    return {label(found, TRANSFORMER): BASELINE, **fused, **styles} if TRANSFORMER in found["arms"] else styles


def _costs(found: Found, styles: dict[str, Style], path: Path) -> None:
    panels = []
    for part, title, name, unit in (
        (TRAINING, "training", "tokens_per_second", "target tokens per second"),
        (TRANSLATION, "translation, the same number of tokens for every model", "seconds", "seconds"),
    ):
        rows = cost_rows(found, part)
        points = [(label(found, arm), length, row[name]) for length, own in rows.items() for arm, row in own.items()]
        panels.append(Panel(title, "tokens per document", unit, points))
    draw(path, panels, styles, (10.5, 4.8), columns=4)


def _quality_and_speed(found: Found, ways: list[Way], styles: dict[str, Style], path: Path) -> None:
    """Draws, a panel for each length, d-BLEU against the Transformer's over the speed of training against its, with
    fused attention."""
    figure, grid = plt.subplots(
        1, len(ways), figsize=(4.6 * len(ways), 4.6), layout="constrained", squeeze=False, sharey=True
    )
    shown = {}
    for axes, way in zip(grid[0], ways, strict=True):
        for arm, row in cost_rows(found, TRAINING)[way.longest].items():
            difference = difference_of(found, arm, way)
            speed, base = row["tokens_per_second"], row["base"].get("tokens_per_second")
            if difference and speed and base:
                spread = [[difference["mean"] - difference["low"]], [difference["high"] - difference["mean"]]]
                name = label(found, arm)
                style = {**styles[name], "linestyle": "none", "capsize": 3}
                shown[name] = axes.errorbar([speed / base], [difference["mean"]], numpy.abs(spread), **style)
        axes.axhline(0, color="black", linestyle="--", linewidth=1)
        axes.axvline(1, color="black", linestyle="--", linewidth=1)
        axes.set_title(f"{way.longest:,} tokens", fontsize=11)
        axes.set(xlabel="training speed, times the Transformer's, all fused")
        axes.grid(alpha=0.3)
    grid[0][0].set_ylabel("d-BLEU against the Transformer's")
    figure.legend(shown.values(), shown, loc="outside lower center", ncols=4, fontsize="small")
    save(figure, path)


def _glossaries(found: Found, way: Way, styles: dict[str, Style], path: Path) -> None:
    figure, axes = plt.subplots(figsize=(8.8, 5.6), layout="constrained")
    by_arm = rows_of(found, way)
    first = next(iter(by_arm.values()))[0]["glossary"]
    ranges = [str(Bucket(own["shortest"], own["longest"])) for own in first]
    for arm, rows in by_arm.items():
        axes.plot(
            range(len(ranges)),
            [100 * share for share in glossary_means(rows)],
            label=label(found, arm),
            **styles[label(found, arm)],
        )
    chance = [100 * own["chance"] for own in first]
    axes.plot(range(len(ranges)), chance, label="any name of the glossary", color="grey", linestyle=":")
    axes.set_xticks(range(len(ranges)), ranges, fontsize="small")
    axes.set(xlabel="since the name was last there", ylabel="names translated as it says, %", ylim=(-3, 103))
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower center", ncols=3, fontsize="small")
    save(figure, path)
