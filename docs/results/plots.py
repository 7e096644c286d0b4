"""Draws the plots of documents.md, encoders.md and speed.md from the CSV files beside it.

usage: plots.py [FOLDER]    writes into FOLDER, by default beside the CSV files
"""

import csv
import sys
from io import BytesIO
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

HERE = Path(__file__).parent
BLACK, BLUE, RED, GREEN, GREY = "#222222", "#0072B2", "#D55E00", "#009E73", "#777777"


def rows(name: str) -> list[dict[str, str]]:
    """Returns the rows of one of the CSV files."""
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def empty(x_label: str, y_label: str) -> tuple[Figure, Axes]:
    """Returns a figure with one panel."""
    figure, axes = pyplot.subplots(figsize=(7.6, 4.4), layout="constrained")
    axes.set(xlabel=x_label, ylabel=y_label)
    plain(axes, "y")
    return figure, axes


def plain(axes: Axes, grid: str) -> None:
    """Leaves a panel a grid along one axis, and no frame above and on the right."""
    axes.grid(axis=grid, color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)


def converted() -> Figure:
    """Draws d-BLEU of converted models less that of their Transformer, a point a seed, by text and length of parts."""
    figure, panels = pyplot.subplots(1, 2, figsize=(7.6, 3.6), sharex=True, sharey=True, layout="constrained")
    stored = rows("documents_converted.csv")
    scores = {tuple(row[key] for key in ("text", "model", "seed", "tokens")): float(row["d_bleu"]) for row in stored}
    models = list(dict.fromkeys(row["model"] for row in stored))[1:]  # after the Transformer
    for axes, text in zip(panels, dict.fromkeys(row["text"] for row in stored), strict=True):
        axes.axvline(0, color=BLACK, linewidth=1)
        for number, (tokens, colour, marker) in enumerate((("1024", BLUE, "o"), ("2048", RED, "D"))):
            points = [
                (score - scores[text, "Transformer", seed, tokens], models.index(model) + 0.3 * (number - 0.5))
                for (own, model, seed, length), score in scores.items()
                if (own, length) == (text, tokens) and model in models
            ]
            label = f"parts of {int(tokens):,} tokens"
            axes.plot(*zip(*points, strict=True), color=colour, marker=marker, linestyle="", alpha=0.8, label=label)
        axes.set(title=text, xlabel="d-BLEU, difference")
        axes.set_yticks(range(len(models)), models)
        plain(axes, "x")
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def accuracy() -> Figure:
    """Draws the accuracy of fine-tuned models as the difference from full attention, by set."""
    figure, axes = empty("", "accuracy, points from full attention")
    styles = {"two-level": (BLUE, "o"), "key clusters": (GREEN, "s"), "Linformer": (RED, "D")}
    sets = {
        "sentence_polarity": "sentence_polarity\n41 tokens, 1,066 texts",
        "subjectivity": "subjectivity\n43 tokens, 1,000 texts",
        "movie_reviews": "movie_reviews\n1,281 tokens, 200 texts",
    }
    for number, (model, (colour, marker)) in enumerate(styles.items()):
        for place, name in enumerate(sets):
            (row,) = (r for r in rows("encoders_differences.csv") if (r["set"], r["model"]) == (name, model))
            mean, low, high = (float(row[key]) for key in ("points_from_transformer", "low", "high"))
            x = place + 0.2 * (number - 1)
            label = model if not place else None
            bars = [[mean - low], [high - mean]]
            axes.errorbar(x, mean, yerr=bars, color=colour, marker=marker, markersize=7, capsize=4, label=label)
    axes.axhline(0, color=BLACK, linewidth=1)
    axes.set_xticks(range(3), list(sets.values()))
    axes.set_xlim(-0.5, 2.5)
    axes.legend(loc="lower left", frameon=False)
    return figure


def time_of_attention() -> Figure:
    """Draws the time of attention modules against length."""
    figure, axes = empty("tokens in a sentence", "forward pass of a sentence, ms")
    styles = {
        ("n × n softmax", ""): (GREY, "^", ":", "softmax over n × n scores"),
        ("fused (torch)", ""): (BLACK, "o", "-", "fused attention of torch"),
        ("Longformer", "257"): ("#CC79A7", "v", "--", "Longformer, 257 tokens (transformers)"),
        ("Nyströmformer", "64"): ("#56B4E9", "P", "--", "Nyströmformer, 64 landmarks (nystrom-attention)"),
        ("Linformer of fairseq's example", "256"): ("#E69F00", "s", "--", "Linformer, k = 256 (fairseq's example)"),
        ("Linformer", "256"): (RED, "D", "-", "Linformer, k = 256 (this package)"),
    }
    stored = [row for row in rows("speed.csv") if row["measure"] == "self-attention forward"]
    for (model, k), (colour, marker, line, label) in styles.items():
        points = [(int(r["tokens"]), float(r["value"])) for r in stored if (r["model"], r["k"]) == (model, k)]
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, linestyle=line, label=label)
    axes.set(xscale="log", yscale="log")
    lengths = [512, 2048, 8192, 32768]
    axes.set_xticks(lengths, [f"{length:,}" for length in lengths])
    axes.set_yticks([10, 100, 1000, 10000], ["10", "100", "1,000", "10,000"])
    axes.minorticks_off()
    axes.legend(loc="upper left", frameon=False, fontsize="small")
    return figure


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    pyplot.rcParams["font.size"] = 11
    for name, draw in (("documents", converted), ("encoders", accuracy), ("speed", time_of_attention)):
        drawn = BytesIO()
        draw().savefig(drawn, dpi=110)
        Image.open(drawn).quantize(64).save(folder / f"{name}.png", optimize=True)
