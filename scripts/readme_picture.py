#!/usr/bin/env python3
"""Draws the README's picture of quality and speed, and prints the table below it, both from stored results.

usage: .venv/bin/python scripts/readme_picture.py [--quality FILE] [--times FILE] [--out PNG]

QUALITY is written by `python -m linformer_fairseq.quality ... --test`, TIMES by `python -m linformer_fairseq.benchmark
efficiency --parts modules,cross,causal --k 64 --lengths ... --out docs/benchmarks/k64`.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from linformer_fairseq.cli.main import quiet_libraries

quiet_libraries()  # before matplotlib, which logs its import

# ruff: noqa: E402
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from linformer_fairseq.benchmark.efficiency.contenders import FUSED, OURS, TWO_LEVELS
from linformer_fairseq.benchmark.efficiency.module_grid import BACKWARD, FORWARD
from linformer_fairseq.cli.figures import BASELINE_STYLE, save
from linformer_fairseq.cli.files import read_json
from linformer_fairseq.cli.tables import table as markdown

DOCS = Path(__file__).parents[1] / "docs"
QUALITY = DOCS / "quality" / "results.json"
TIMES = DOCS / "benchmarks" / "k64" / "results.json"
PICTURE = DOCS / "overview.png"
BASELINE = "transformer"
SUBSET = "test"
KS = (8, 16)
TIME_LENGTHS = (128, 512, 1_024, 2_048, 8_192)
"""The lengths of the table, where they were measured; the picture shows all."""
MEMORY_LENGTHS = (512, 8_192)


class Kind(NamedTuple):
    """A kind of attention under the names that the two commands give it."""

    label: str
    variant: str
    contender: str
    colour: str
    marker: str


KINDS = (Kind("Linformer", "linformer", OURS, "C3", "o"), Kind("two levels", "two-level-all", TWO_LEVELS, "C0", "s"))


class Gain(NamedTuple):
    """How much better a mean over seeds is than the baseline's in BLEU, with its 95 % interval."""

    mean: float
    low: float
    high: float


class Cost(NamedTuple):
    """Time and peak memory of one pass over one batch."""

    seconds: float
    peak_bytes: float


@dataclass(frozen=True)
class Quality:
    """The study's figures for the test set."""

    bleu: dict[tuple[str, int | None], float]
    """Means over seeds, by variant and k."""
    gains: dict[tuple[str, int | None], Gain]

    @classmethod
    def read(cls, path: Path) -> "Quality":
        """Reads the results.json of the study."""
        facts = read_json(path)
        by_model: dict[tuple[str, int | None], list[float]] = {}
        for row in facts["results"]:
            if row["subset"] == SUBSET:
                by_model.setdefault((row["variant"], row["k"]), []).append(row["bleu"])
        gains = {
            (row["variant"], row["k"]): Gain(row["mean"], row["low"], row["high"])
            for row in facts["differences"]
            if row["subset"] == SUBSET
        }
        return cls({model: sum(bleus) / len(bleus) for model, bleus in by_model.items()}, gains)


@dataclass(frozen=True)
class Costs:
    """What attention modules with one k cost, by contender, pass and length."""

    k: int
    lengths: list[int]
    cost: dict[tuple[str, str, int], Cost]

    @classmethod
    def read(cls, path: Path) -> "Costs":
        """Reads the results.json of the benchmark.

        Raises:
            SystemExit: it was measured with several k.
        """
        blocks: dict[str, list[dict[str, Any]]] = read_json(path)["blocks"]
        rows = [row for name, block in blocks.items() if name.startswith("modules") for row in block if row["time"]]
        ks = {row["k"] for row in rows} - {None}
        if len(ks) != 1:
            raise SystemExit(f"error: {path} was measured with k = {sorted(ks)}; measure with one --k")
        cost = {
            (row["contender"], row["passes"], row["length"]): Cost(row["time"]["median_seconds"], row["peak_bytes"])
            for row in rows
        }
        return cls(ks.pop(), sorted({length for _, _, length in cost}), cost)

    def ratio(self, kind: Kind, passes: str, length: int) -> Cost:
        """Multiples of what torch's fused attention takes."""
        own, fused = self.cost[kind.contender, passes, length], self.cost[FUSED, passes, length]
        return Cost(own.seconds / fused.seconds, own.peak_bytes / fused.peak_bytes)


def table(quality: Quality, costs: Costs) -> str:
    """The README's table, as Markdown."""
    rows = []
    for k in KS:
        gains = [quality.gains[kind.variant, k] for kind in KINDS]
        differences = [f"{gain.mean:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}]" for gain in gains]
        rows.append([f"BLEU, k = {k}", f"{quality.bleu[BASELINE, None]:.1f}", *differences])
    for what, lengths, unit, scale, field in (
        ("time", TIME_LENGTHS, "ms", 1e3, "seconds"),
        ("peak memory", MEMORY_LENGTHS, "MB", 1e-6, "peak_bytes"),
    ):
        for length in [length for length in lengths if length in costs.lengths]:
            fused = [scale * getattr(costs.cost[FUSED, passes, length], field) for passes in (FORWARD, BACKWARD)]
            ratios = [
                " · ".join(f"{getattr(costs.ratio(kind, passes, length), field):.2f}" for passes in (FORWARD, BACKWARD))
                for kind in KINDS
            ]
            name = f"{what}, {length:,} tokens, k = {costs.k}"
            rows.append([name, " · ".join(f"{amount:,.0f}" for amount in fused) + f" {unit}", *ratios])
    return markdown(["", "full attention", *(kind.label for kind in KINDS)], rows)


def draw(quality: Quality, costs: Costs, path: Path) -> None:
    """Writes the picture: quality on the left, speed on the right."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained", width_ratios=(2, 3))
    _draw_quality(left, quality)
    _draw_times(right, costs)
    save(figure, path)


def _draw_quality(axes: Axes, quality: Quality) -> None:
    for number, kind in enumerate(KINDS):
        gains = [quality.gains[kind.variant, k] for k in KS]
        means = [gain.mean for gain in gains]
        errors = [[gain.mean - gain.low for gain in gains], [gain.high - gain.mean for gain in gains]]
        places = [place + 0.16 * (number - 0.5) for place in range(len(KS))]
        style = {"color": kind.colour, "marker": kind.marker, "linestyle": "", "capsize": 4}
        axes.errorbar(places, means, errors, label=kind.label, **style)
    axes.axhline(0, **BASELINE_STYLE, linewidth=1, label="full attention")
    axes.set_xticks(range(len(KS)), [f"k = {k}" for k in KS])
    axes.set_xlim(-0.5, len(KS) - 0.5)
    axes.set(title="Quality: captions of 16 tokens", ylabel="BLEU against the Transformer")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right", fontsize="small")


def _draw_times(axes: Axes, costs: Costs) -> None:
    for kind in KINDS:
        for passes, linestyle in ((FORWARD, "-"), (BACKWARD, ":")):
            ratios = [costs.ratio(kind, passes, length).seconds for length in costs.lengths]
            style = {"color": kind.colour, "marker": kind.marker, "linestyle": linestyle, "markersize": 5}
            axes.plot(costs.lengths, ratios, label=f"{kind.label}, {passes}", **style)
    axes.axhline(1, **BASELINE_STYLE, linewidth=1, label="full attention, fused (torch)")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(costs.lengths, [f"{length:,}" for length in costs.lengths])
    axes.set_xticks([], minor=True)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ratio, _: f"{ratio:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set(title=f"Speed: attention modules, k = {costs.k}", xlabel="tokens of a sentence")
    axes.set_ylabel("time over that of fused attention")
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize="small")


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw the README's picture and print its table.")
    parser.add_argument("--quality", type=Path, default=QUALITY, metavar="FILE", help="results.json of the study")
    parser.add_argument("--times", type=Path, default=TIMES, metavar="FILE", help="results.json of the benchmark")
    parser.add_argument("--out", type=Path, default=PICTURE, metavar="PNG", help="the picture to write")
    args = parser.parse_args(argv)
    for path in (args.quality, args.times):
        if not path.is_file():
            parser.error(f"{path} is not there: measure it as the head of this script says, or name another file")
    quality, costs = Quality.read(args.quality), Costs.read(args.times)
    draw(quality, costs, args.out)
    print(table(quality, costs))


if __name__ == "__main__":
    main()
