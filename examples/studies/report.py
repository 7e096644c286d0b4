"""Writes report.md, results.csv and plots of the runs in OUT/runs.

usage: report.py OUT [--arms ARM[:SEED,SEED] ...] [--baseline ARM] [--metrics NAME ...]

A run is a folder with a `scores.json`: OUT/runs/ARM, or OUT/runs/ARM/seed-N where an arm has several seeds. It may hold
`command`, `about`, `train.log` (of `fairseq-train --log-format json`) and `test.LANG`, a translation of the text whose
reference is OUT/reference.LANG. A text that was translated in several ways is `test-WAY.LANG`, with scores `WAY: NAME`.
"""

import argparse
import contextlib
import csv
import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NoReturn

import matplotlib
import numpy
from sacrebleu.metrics import BLEU
from tabulate import tabulate

matplotlib.use("Agg")
from matplotlib import pyplot

SAMPLES, SEED = 1000, 12345
"""Resamples of a test set, and the seed that draws them: sacreBLEU's own."""
FIRST = ("perplexity", "BLEU", "chrF")
"""Metrics that come first in the table, in this order."""
OTHERS = ("translation, s", "sentences/s", "tokens/s", "averaged")
"""What `scores.json` has that is no metric: times, and how many checkpoints were averaged."""
NOTHING = "–"


@dataclass(frozen=True)
class Run:
    """One training: its scores, and what its log and its command say."""

    arm: str
    folder: Path
    scores: dict[str, float]
    signatures: list[str] = field(default_factory=list)

    @cached_property
    def command(self) -> str:
        return _read(self.folder / "command")

    @cached_property
    def about(self) -> list[str]:
        """The commit of the code that trained or converted it, and the machine."""
        return [*map(str.strip, _read(self.folder / "about").splitlines()), "", ""][:2]

    @cached_property
    def seed(self) -> int:
        named = re.fullmatch(r"seed-(\d+)", self.folder.name)
        return int(named[1] if named else self.flag("--seed") or 1)

    @cached_property
    def k(self) -> int:
        """The projected dimension; 0 where the command names none, as for full attention."""
        return int(re.sub(r",.*", "", self.flag("--linformer-k") or "0"))

    @cached_property
    def family(self) -> str:
        """The arm without its k, as models of one kind of attention are joined in a plot."""
        return re.sub(r"-?k=?\d+", "", self.arm)

    def flag(self, name: str) -> str | None:
        """Returns the value that the command gives a flag last."""
        found = re.findall(rf"{name}[ =](\S+)", self.command)
        return found[-1] if found else None

    @cached_property
    def logged(self) -> dict[str, list[dict[str, Any]]]:
        """What fairseq-train has logged as JSON, by kind: train_inner, train (an epoch) and valid."""
        kinds: dict[str, list[dict[str, Any]]] = {"train_inner": [], "train": [], "valid": []}
        lines = re.findall(r"\| (train_inner|train|valid) \| (\{.*\})$", _read(self.folder / "train.log"), re.M)
        for kind, line in lines:
            with contextlib.suppress(ValueError):  # two lines in one, as the disk was full
                kinds[kind].append(json.loads(line))
        return kinds

    @cached_property
    def curve(self) -> list[tuple[int, float]]:
        """Pairs of update and validation perplexity; what was trained twice, as it was resumed, counts once."""
        rows = [row for row in self.logged["valid"] if "valid_ppl" in row]
        points = {int(row["valid_num_updates"]): float(row["valid_ppl"]) for row in rows}
        return sorted(points.items())

    @cached_property
    def training(self) -> dict[str, float]:
        """Seconds spent in updates, and target tokens a second; empty where a kill has lost those of an epoch."""
        epochs = {int(row["epoch"]): row for row in self.logged["train"]}
        if not epochs or set(epochs) != set(range(1, len(epochs) + 1)):
            return {}
        seconds, tokens, before = 0.0, 0.0, 0
        for _, row in sorted(epochs.items()):
            updates = int(row["train_num_updates"])
            seconds += float(row["train_train_wall"])
            tokens += float(row["train_wpb"]) * (updates - before)
            before = updates
        return {"updates": before, "training, s": seconds, "trained tokens/s": tokens / max(seconds, 1.0)}

    @property
    def measured(self) -> dict[str, float]:
        """Everything that was measured, by the name of its column."""
        return {**self.scores, **self.training}


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""


def find_runs(out: Path, arms: Sequence[str]) -> dict[str, list[Run]]:
    """Returns the finished runs of every arm, in order of their seeds; of all arms and seeds unless some are named."""
    seeds = {arm: [*filter(None, own.split(","))] for arm, _, own in (name.partition(":") for name in arms)}
    found: dict[str, list[Run]] = {arm: [] for arm in seeds}
    for path in sorted([*out.glob("runs/*/scores.json"), *out.glob("runs/*/seed-*/scores.json")]):
        arm = path.relative_to(out / "runs").parts[0]
        if not re.fullmatch(rf"{re.escape(arm)}|seed-\d+", path.parent.name):
            continue
        if not arms or (arm in seeds and (not seeds[arm] or path.parent.name[5:] in seeds[arm])):
            values = json.loads(path.read_text(encoding="utf-8"))
            scores = {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
            found.setdefault(arm, []).append(Run(arm, path.parent, scores, values.get("signatures", [])))
    return {arm: sorted(runs, key=lambda run: run.seed) for arm, runs in found.items()}


def translations(runs: Sequence[Run], suffix: str) -> list[str]:
    """Returns the names of the translations of the test set that all these runs have."""
    named = [{path.name for path in run.folder.glob(f"test*{suffix}")} for run in runs]
    return sorted(set.intersection(*named), key=lambda name: (len(name), name))


class Bootstrap:
    """Paired bootstrap over the sentences of a test set (Koehn, 2004); all seeds of an arm are resampled together.

    p is computed as by `sacrebleu --paired-bs`, and the same with one seed an arm.

    Args:
        name: of the translations in the folders of the runs.
    """

    def __init__(self, reference: Path, name: str) -> None:
        self.name = name
        self.way = re.sub(r"^test-?(.*)\..*", r"\1: ", name).removeprefix(": ")
        """What the names of its scores begin with."""
        self.references = reference.read_text(encoding="utf-8").split("\n")[:-1]
        self.bleu = BLEU(force=True)
        draws = numpy.random.default_rng(SEED).choice(
            len(self.references), size=(SAMPLES, len(self.references)), replace=True
        )
        self.weights = numpy.stack([numpy.bincount(draw, minlength=len(self.references)) for draw in draws])

    def has(self, runs: Sequence[Run]) -> bool:
        """Returns whether all these runs have translated the test set."""
        return all((run.folder / self.name).is_file() for run in runs)

    def scores(self, runs: Sequence[Run]) -> numpy.ndarray:
        """Returns BLEU of the test set and of its resamples, means over the runs, (1 + SAMPLES,)."""
        weights = numpy.vstack([numpy.ones_like(self.weights[:1]), self.weights])
        return numpy.mean([[self._of(row) for row in weights @ self._counts(run)] for run in runs], axis=0)

    def _counts(self, run: Run) -> numpy.ndarray:
        """Returns lengths, matching n-grams and all n-grams of each sentence, (sentences, 10)."""
        lines = (run.folder / self.name).read_text(encoding="utf-8").split("\n")[:-1]
        scores = [self.bleu.corpus_score([o], [[r]]) for o, r in zip(lines, self.references, strict=True)]
        return numpy.array([[s.sys_len, s.ref_len, *s.counts, *s.totals] for s in scores])

    def _of(self, counts: numpy.ndarray) -> float:
        sys_len, ref_len, *rest = counts.tolist()
        return float(self.bleu.compute_bleu(rest[:4], rest[4:], sys_len, ref_len, self.bleu.smooth_method).score)

    def differences(self, found: dict[str, list[Run]], baseline: str) -> dict[str, list[str]]:
        """Returns the difference of each arm from the baseline, its interval and p, where translations are there."""
        scores = {arm: self.scores(runs) for arm, runs in found.items() if runs and self.has(runs)}
        before = scores.pop(baseline)
        told = {}
        for arm, own in scores.items():
            gain, low, high, p = self.compare(before, own)
            told[arm] = [f"{gain:+.2f} [{low:+.2f}, {high:+.2f}]", f"{p:.3f}"]
        return told

    @staticmethod
    def compare(baseline: numpy.ndarray, system: numpy.ndarray) -> tuple[float, float, float, float]:
        """Returns how much better the system is, the middle 95 % of that over the resamples, and sacreBLEU's p."""
        found, *resampled = system - baseline
        spread = numpy.abs(resampled)
        p = (int((spread - spread.mean() > abs(found)).sum()) + 1) / (SAMPLES + 1) if found else 1.0
        cut = SAMPLES // 40
        low, high = numpy.sort(resampled)[[cut, -1 - cut]]
        return float(found), float(low), float(high), p


def written(values: Sequence[float], digits: int = 2) -> str:
    """Returns a mean, with the standard deviation over seeds where there are several."""
    if not values:
        return NOTHING
    deviation = f" ± {stdev(values):,.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):,.{digits}f}{deviation}"


def column(runs: Iterable[Run], name: str) -> list[float]:
    """Returns what the runs have of a measured value."""
    return [run.measured[name] for run in runs if name in run.measured]


def without_way(name: str) -> str:
    """Returns the name of a score without that of the way of translating."""
    return name.rpartition(": ")[2]


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table, all columns but the first to the right."""
    align = ["left", *["right"] * (len(headers) - 1)]
    return tabulate(rows, headers, tablefmt="pipe", disable_numparse=True, colalign=align)


def quality(found: dict[str, list[Run]], baseline: str, metrics: Sequence[str], bootstraps: Sequence[Bootstrap]) -> str:
    """Returns the table of scores, with the difference from the baseline for each way of translating."""
    differences = [own.differences(found, baseline) for own in bootstraps]
    rows = []
    for arm, runs in found.items():
        cells = [arm, ", ".join(str(run.seed) for run in runs) or NOTHING]
        cells += [written(column(runs, name)) for name in metrics]
        rows.append(cells + [cell for own in differences for cell in own.get(arm, ["", ""])])
    compared = [name for own in bootstraps for name in (f"{own.way}BLEU against {baseline}", "p")]
    return table(["model", "seeds", *metrics, *compared], rows)


def speed(found: dict[str, list[Run]]) -> str:
    """Returns the table of the times of training, and of translation where there is any."""
    names = {
        "updates": 0,
        "training, s": 0,
        "trained tokens/s": 0,
        "translation, s": 1,
        "sentences/s": 1,
        "tokens/s": 0,
    }
    known = dict.fromkeys(name for runs in found.values() for run in runs for name in run.measured)
    shown = {name: names[wanted] for wanted in names for name in known if without_way(name) == wanted}
    rows = [[arm, *(written(column(runs, name), shown[name]) for name in shown)] for arm, runs in found.items()]
    return table(["model", *shown], rows)


def draw_curves(found: dict[str, list[Run]], path: Path) -> bool:
    """Draws validation perplexity against updates, a line a run and a colour an arm; returns whether there was any."""
    figure, axes = pyplot.subplots(figsize=(7.5, 4.8), layout="constrained")
    for number, (arm, runs) in enumerate(found.items()):
        for place, run in enumerate(run for run in runs if run.curve):
            label = {"label": arm} if place == 0 else {}
            axes.plot(*zip(*run.curve, strict=True), color=f"C{number}", linewidth=1.2, alpha=0.85, **label)
    axes.set(xlabel="updates", ylabel="validation perplexity", yscale="log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(alpha=0.3, which="both")
    drawn = bool(axes.lines)
    if drawn:
        axes.legend()
        _save(figure, path)
    pyplot.close(figure)
    return drawn


def draw_comparison(found: dict[str, list[Run]], metrics: Sequence[str], path: Path) -> bool:
    """Draws quality and speed against k where there are several: a line a kind of attention, dots for seeds."""
    wanted = (*metrics[:2], "trained tokens/s", "sentences/s")
    names = [name for name in wanted if any(column(runs, name) for runs in found.values())]
    ks = sorted({run.k for runs in found.values() for run in runs if run.k})
    if len(ks) < 2 or not names:
        return False
    figure, grid = pyplot.subplots(1, len(names), figsize=(3.6 * len(names), 3.9), layout="constrained", squeeze=False)
    families = list(dict.fromkeys(run.family for runs in found.values() for run in runs))
    for axes, name in zip(grid[0], names, strict=True):
        for number, family in enumerate(families):
            points: dict[int, list[float]] = {}
            for run in (run for runs in found.values() for run in runs if run.family == family):
                if name in run.measured:
                    points.setdefault(run.k, []).append(run.measured[name])
            if 0 in points:
                color = "black" if number == 0 else f"C{number}"
                axes.axhline(mean(points.pop(0)), color=color, linestyle="--", label=family)
            if points:
                means = sorted((k, mean(values)) for k, values in points.items())
                axes.plot(*zip(*means, strict=True), color=f"C{number}", marker="o", label=family)
                dots = [(k, value) for k, values in points.items() for value in values]
                axes.plot(*zip(*dots, strict=True), ".", color=f"C{number}", markersize=4, alpha=0.6)
        axes.set_xscale("log", base=2)
        axes.set_xticks(ks, labels=[str(k) for k in ks])
        axes.set(title=name, xlabel="k")
        axes.margins(x=0.1, y=0.15)
        axes.grid(alpha=0.3)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    _save(figure, path)
    pyplot.close(figure)
    return True


def _save(figure: Any, path: Path) -> None:
    part = path.with_name(f".{path.name}")
    figure.savefig(part, dpi=130)
    os.replace(part, path)


def commands(found: dict[str, list[Run]]) -> str:
    """Returns how every run was trained: the command of an arm's first seed, and how the others differ from it."""
    parts = []
    for arm, runs in found.items():
        first = runs[0].command.splitlines() if runs else []
        for run in runs:
            commit, machine = run.about
            parts.append(f"{arm}, seed {run.seed}: commit {commit or 'unknown'}, {machine or 'unknown machine'}")
            if run is runs[0]:
                parts.append(f"```\n{run.command.strip()}\n```")
            elif other := [line.strip(" \\") for line in run.command.splitlines() if line not in first]:
                parts[-1] += f", with `{' '.join(other)}`"
    return "\n\n".join(parts)


def write_csv(found: dict[str, list[Run]], path: Path) -> None:
    """Writes a row a run, with everything that was measured, the commit and the command."""
    runs = [run for own in found.values() for run in own]
    names = list(dict.fromkeys(name for run in runs for name in run.measured))
    part = path.with_name(f".{path.name}")
    with open(part, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["arm", "seed", "k", *names, "commit", "machine", "command"])
        for run in runs:
            flat = re.sub(r" \\\n\s*", " ", run.command).strip()
            values = [run.measured.get(name, "") for name in names]
            writer.writerow([run.arm, run.seed, run.k, *values, *run.about, flat])
    os.replace(part, path)


def main(argv: Sequence[str]) -> None:
    """Writes the report, or ends with one sentence and status 2 where there is nothing to report."""
    parser = argparse.ArgumentParser(description="Write report.md, results.csv and plots of the runs in OUT/runs.")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--arms", nargs="+", default=[], help="which arms and seeds, in this order (default: all)")
    parser.add_argument("--baseline", help="what the others are compared with (default: the first without k)")
    parser.add_argument("--metrics", nargs="+", help="columns of the table of scores (default: all of scores.json)")
    args = parser.parse_args(argv)
    out = args.out.resolve()
    found = find_runs(out, args.arms)
    runs = [run for own in found.values() for run in own]
    if not runs:
        refuse(f"no run in {out / 'runs'} has a scores.json: evaluate one first (evaluate.sh).")
    baseline = args.baseline or next((run.arm for run in runs if not run.k), runs[0].arm)
    if not found.get(baseline):
        refuse(
            f"the baseline {baseline} has no scores.json in {out / 'runs'}: evaluate it, or name another --baseline."
        )
    found = {baseline: found[baseline], **found}
    known = dict.fromkeys(name for run in runs for name in run.scores if without_way(name) not in OTHERS)
    metrics = args.metrics or [
        *(name for name in FIRST if name in known),
        *(name for name in known if name not in FIRST),
    ]
    bootstraps = [
        Bootstrap(reference, name)
        for reference in out.glob("reference.*")
        for name in translations(found[baseline], reference.suffix)
    ]
    drawn = {
        "curves.png": draw_curves(found, out / "curves.png"),
        "comparison.png": draw_comparison(found, metrics, out / "comparison.png"),
    }
    tables = [quality(found, baseline, metrics, bootstraps), speed(found)]
    parts = [
        f"# {out.name}",
        "## Quality",
        tables[0],
        notes(runs, found, bool(bootstraps)),
        "## Time",
        tables[1],
        "Training counts the seconds in updates, and tokens (of the target, in translation); translation counts the "
        "search alone. Times can be compared where every run had the machine to itself.",
        *(f"![{name}]({name})" for name, exists in drawn.items() if exists),
        "## Commands",
        commands(found),
    ]
    write_csv(found, out / "results.csv")
    part = out / ".report.md"
    part.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    os.replace(part, out / "report.md")
    print(*tables, f"{out / 'report.md'}: written", sep="\n\n")


def notes(runs: Sequence[Run], found: dict[str, list[Run]], compared: bool) -> str:
    """Returns what a reader has to know of the table of scores."""
    parts = ["Means and standard deviations over seeds; perplexity is that of the validation set."]
    if all(len(own) < 2 for own in found.values()):
        parts = ["**One seed a model: another seed alone can move scores by as much as many of these differences.**"]
    if compared:
        parts.append(
            "In brackets the 95 % interval of a paired bootstrap over test sentences, with p as sacreBLEU computes it; "
            "it ignores variation between seeds."
        )
    signatures = sorted({signature for run in runs for signature in run.signatures})
    return " ".join([*parts, "Signatures:" * bool(signatures), *(f"`{signature}`" for signature in signatures)])


def refuse(sentence: str) -> NoReturn:
    """Ends with one sentence and status 2."""
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(2)


if __name__ == "__main__":
    main(sys.argv[1:])
