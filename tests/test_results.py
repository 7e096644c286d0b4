"""The figures of the pages of results and of the README are those of the stored runs, and the plots can be drawn."""

import csv
import re
import runpy
import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, stdev

import pytest

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
SENTENCES = {"sentence_polarity", "subjectivity"}
LENGTHS = ("1024", "2048")
FUSED = "Transformer, fused"
FAIRSEQS = "Transformer, fairseq's"


def rows(name: str, **values: str) -> list[dict[str, str]]:
    """Returns the rows of a table of results that have these values."""
    with (RESULTS / name).open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if all(row[key] == value for key, value in values.items())]


def row(name: str, **values: str) -> dict[str, str]:
    """Returns the only row that has these values."""
    (found,) = rows(name, **values)
    return found


def told(document: Path) -> dict[str, list[str]]:
    """Returns the cells of the tables of a document by the first cell of their row, without heads."""
    lines = re.findall(r"^\|(.*)\|\n(?!\|---)", document.read_text(encoding="utf-8"), re.MULTILINE)
    table: dict[str, list[str]] = {}
    for first, *others in ([cell.strip() for cell in line.split("|")] for line in lines if "---" not in line):
        table[first if first not in table else f"{first} again"] = others
    return table


def spread(values: list[float], digits: int) -> str:
    """Returns a mean with its standard deviation, if there are several values."""
    deviation = f"±{stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def speed(measure: str, machine: str, tokens: str, key: str = "value") -> dict[str, float]:
    """Returns figures of speed by model."""
    found = rows("speed.csv", measure=measure, tokens=tokens)
    return {r["model"]: float(r[key]) for r in found if machine in r["machine"] and r[key]}


def test_translation() -> None:
    """Means and deviations over the first three seeds; the other two seeds are told of in the text."""
    scores: dict[str, dict[str, list[float]]] = {}
    for run in rows("translation.csv"):
        if int(run["seed"]) <= 3:
            kind = run["model"].replace("two-level, decoder", "decoder")
            columns = scores.setdefault(f"{kind}, k = {run['k']}" if run["k"] else kind, {})
            columns.setdefault(run["set"], []).append(float(run["bleu"]))
            if run["set"] == "valid":
                columns.setdefault("perplexity", []).append(float(run["validation_perplexity"]))
    assert {model: [cells[0], cells[1], cells[3]] for model, cells in told(RESULTS / "translation.md").items()} == {
        model: [spread(columns[key], digits) for key, digits in (("perplexity", 2), ("test", 1), ("valid", 1))]
        for model, columns in scores.items()
    }


def test_documents() -> None:
    """Means over seeds: of a Transformer's scores, and of a converted model's differences from its own Transformer."""
    table = {name: cells for name, cells in told(RESULTS / "documents.md").items() if ": " in name}
    assert len(table) > 10
    for name, cells in table.items():
        text, model, seeds = re.fullmatch(r"(.*): (.*) \((\d)\)", name).groups()
        found: dict[tuple[str, str], list[float]] = {}
        runs = rows("documents_converted.csv", text=text, model=model)
        for run in runs:
            same = {key: run[key] for key in ("text", "seed", "tokens")}
            before = row("documents_converted.csv", model="Transformer", **same)
            for key in ("perplexity", "d_bleu", "missing_percent", "out_of_place_percent", "names_kept_percent"):
                value, less = float(run[key]), 0.0 if model == "Transformer" else float(before[key])
                percent = less and key == "perplexity"
                found.setdefault((key, run["tokens"]), []).append(100 * (value / less - 1) if percent else value - less)
        signed = "" if model == "Transformer" else "+"
        perplexity, *scores = (
            [f"{mean(found[key, tokens]):{signed}.{2 if key == 'perplexity' else 1}f}" for tokens in LENGTHS]
            for key in dict.fromkeys(key for key, _ in found)
        )
        assert len({run["seed"] for run in runs}) == int(seeds)
        assert cells == [perplexity[0] + (" %" if signed else ""), *map(" · ".join, scores)], name


def test_long_chapters() -> None:
    """What conversion costs in perplexity, seed by seed."""
    two_levels, sizes = "--linformer-projection two-level --linformer-k", "--linformer-sizes"
    settings = {"all places": f"{two_levels} 128", "all places, k = 64": f"{two_levels} 64"}
    settings["all places, old sizes"] = f"{two_levels} 128 {sizes} 1"
    for place in ("encoder", "cross", "decoder"):
        flags = f"--linformer-projection full --linformer-{place}-projection two-level --linformer-k 128"
        settings[place.replace("cross", "cross-attention")] = flags
    table = {name: cells for name, cells in told(RESULTS / "documents.md").items() if ": " not in name}
    assert table.keys() == settings.keys()
    for name, cells in table.items():
        stored = (rows("documents_places.csv", text=text, setting=settings[name]) for text in ("PHP manual", "Bible"))
        assert cells == [" · ".join(f"{float(run['change_percent']):+.2f}" for run in runs) for runs in stored], name


def test_encoders() -> None:
    table = {name: cells for name, cells in told(RESULTS / "encoders.md").items() if ", k = " not in name}
    assert len(table) == 8
    for model, told_of in table.items():
        at_512 = rows("encoders_perplexity.csv", model=model, tokens="512")
        trained = [r for r in at_512 if r["training"] == "trained" and r["k"] in ("", "128")]
        trained = [r for r in trained if r["sharing"] in ("", "headwise")]
        converted = [
            r for r in at_512 if r["training"].startswith("converted, 0%") and r["perplexity_before"] == "29.48"
        ]
        sentences: dict[str, list[float]] = {}
        for run in rows("encoders_accuracy.csv", model=model):
            if run["set"] in SENTENCES:
                sentences.setdefault(run["seed"], []).append(float(run["test_accuracy"]))
        reviews = rows("encoders_accuracy.csv", model=model, set="movie_reviews")
        assert told_of == [
            spread([float(run["perplexity"]) for run in trained], 2),
            *[
                run["perplexity"]
                for run in (trained if model == "Transformer" else converted)[:1] or [{"perplexity": ""}]
            ],
            " · ".join(f"{encoder_ratio(model, tokens):.2f}" for tokens in ("512", "2048")),
            spread([mean(scores) for scores in sentences.values()], 2),
            spread([float(run["test_accuracy"]) for run in reviews], 1) if reviews else "",
        ]


def test_converted_encoders() -> None:
    """What conversion costs models of long blocks in perplexity, seed by seed, at several lengths."""
    table = {name: cells for name, cells in told(RESULTS / "encoders.md").items() if ", k = " in name}
    assert len(table) == 2
    training = "converted from 2048 tokens, no more training"
    for name, cells in table.items():
        model, k = name.split(", k = ")
        for tokens, cell in zip(("512", *LENGTHS), cells, strict=True):
            stored = rows("encoders_perplexity.csv", model=model, k=k, tokens=tokens, training=training)
            assert cell == " · ".join(map(change, stored)), (name, tokens)


def change(run: dict[str, str]) -> str:
    """Returns a change of perplexity in percent."""
    return f"{100 * (float(run['perplexity']) / float(run['perplexity_before']) - 1):+.2f}"


def encoder_ratio(model: str, tokens: str, key: str = "tokens_per_second") -> float:
    """Returns a multiple of full attention's speed or memory in training of encoders."""
    mine, full = (row("encoders_speed.csv", model=kind, tokens=tokens) for kind in (model, "Transformer"))
    return float(mine[key]) / float(full[key])


def ratio(machine: str, tokens: str, model: str, key: str = "value") -> str:
    """Returns a multiple of the fused Transformer's speed or memory, in training of models of WMT's size."""
    for run in ("", ", second run"):  # each with a fused Transformer of its own
        measured = speed(f"training width 512{run}", machine, tokens, key)
        if model in measured:
            return f"{measured[model] / measured[FUSED]:.2f}"
    return ""


def test_speed() -> None:
    lines = [(name, cells) for name, cells in told(RESULTS / "speed.md").items() if re.match("CPU|H200", name)]
    assert len(lines) == 10
    for name, cells in lines:
        machine, _, tokens = name.partition(": ")
        where = (machine.replace("CPU", "EPYC"), tokens.replace("as WMT14's", "WMT14 sentences").replace(",", ""))
        fused = speed("training width 512", *where)[FUSED]
        ratios = [ratio(*where, model) for model in (FAIRSEQS, "two-level", "Linformer")]
        memory = [ratio(*where, model, "peak_mb") for model in ("two-level", "Linformer")]
        assert cells == [f"{fused:,.0f}", *ratios, " · ".join(filter(None, memory))], name


def test_speed_of_full_attention() -> None:
    parts = ("training", "encoder", "step of decoding", "step of a beam of 5")
    table = told(RESULTS / "speed.md")
    for part in parts:
        found = rows("speed.csv", measure=f"2 + 2 layers: {part}")
        seconds = {(run["model"], run["tokens"]): float(run["value"]) for run in found}
        ratios = [
            f"{seconds[FAIRSEQS, tokens] / seconds['full', tokens]:.2f}" if ("full", tokens) in seconds else "–"
            for tokens in ("16", "256", "1024", "2048", "4096")
        ]
        assert table[part] == ratios


def test_events() -> None:
    """Means and deviations over three seeds, the distance to the truth, and speed at two lengths."""
    page = ROOT / "examples/point_process/README.md"
    table = told(page)
    assert set(table) == {found["model"] for found in rows("events.csv")}
    truth = float(*re.findall(r"process has (\S+)\s+nats per event", page.read_text(encoding="utf-8")))
    columns = {"nats": 3, "types_right_percent": 1, "squared_error": 2}
    for model, cells in table.items():
        runs = rows("events.csv", model=model)
        assert [run["seed"] for run in runs] == ["1", "2", "3"]
        speeds = (row("events_speed.csv", model=model, events=events) for events in ("256", "2048"))
        rates = [float(speed["events_per_second"]) for speed in speeds]
        found = {key: [float(run[key]) for run in runs] for key in columns}
        assert cells == [
            f"{mean(found['nats']) - truth:.3f}",
            *(spread(found[key], digits) for key, digits in columns.items()),
            " · ".join(f"{float(f'{rate:.2g}'):,.0f}" for rate in rates),
        ]


def test_readme() -> None:
    """Speed and memory; quality is told with its interval, which is looked up below."""
    for name, (_, *cells) in told(ROOT / "README.md").items():
        what, _, model = name.partition(": ")
        model = model.replace("fairseq's", FAIRSEQS)
        if what.startswith("reviews"):
            rate, memory = encoder_ratio(model, "1024"), encoder_ratio(model, "1024", "peak_mb")
            assert cells == [f"{rate:.2f}", "–", f"{memory:.2f} · –"]
        else:
            lengths = ("32", "WMT14 sentences") if what == "sentences" else ("2048", "2048")
            both = [*zip(("EPYC", "H200"), lengths, strict=True)]
            memories = " · ".join(ratio(*where, model, "peak_mb") for where in both)
            assert cells == [*(ratio(*where, model) for where in both), memories]


def stored_intervals() -> Iterable[tuple[float, ...]]:
    """Yields differences with the ends of their intervals; those of sentences are in the table of their page."""
    for name in ("documents_differences.csv", "encoders_differences.csv"):
        for found in rows(name):
            yield tuple(
                float(found[key]) for key in found if key.endswith(("difference", "_transformer", "low", "high"))
            )
    for cells in told(RESULTS / "translation.md").values():
        for cell in (cells[2], cells[4]):
            if cell:
                yield tuple(map(float, re.findall(r"[-+]?\d+\.\d+", cell)))


@pytest.mark.parametrize("page", ["README.md", "docs/results/documents.md", "docs/results/encoders.md"])
def test_intervals(page: str) -> None:
    """A loss may be told as a positive number."""
    text = re.sub(r"\s+", " ", (ROOT / page).read_text(encoding="utf-8"))
    number = r"([-+]?\d+\.\d+)"
    found = re.findall(rf"{number}(?: [\w-]+)?\*{{0,2}} \[{number}, {number}\]", text)
    assert len(found) > 3
    stored = [*stored_intervals()]
    for texts in found:
        digits = len(texts[0].partition(".")[2])
        middle, low, high = map(float, texts)
        values = {(middle, low, high), (-middle, -high, -low)}
        assert any(
            max(map(abs, (a - b for a, b in zip(one, other, strict=True)))) < 0.51 * 10**-digits + 0.005
            for one in stored
            for other in values
        ), texts


@pytest.mark.parametrize("name", sorted(path.name for path in RESULTS.glob("*.csv")))
def test_figures_name_the_commit_that_made_them(name: str) -> None:
    assert all(re.fullmatch("[0-9a-f]{7}", found.get("commit", "0" * 7)) for found in rows(name))


def test_plots_can_be_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", ["plots.py", str(tmp_path)])
    runpy.run_path(str(RESULTS / "plots.py"), run_name="__main__")
    drawn = {path.name: path.stat().st_size for path in tmp_path.glob("*.png")}
    assert set(drawn) == {"documents.png", "encoders.png", "speed.png"}
    assert all(5_000 < path.stat().st_size < 80_000 for path in RESULTS.glob("*.png"))
