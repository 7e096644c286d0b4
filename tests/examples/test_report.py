"""examples/studies/report.py: the paired bootstrap, tables over seeds, and what it refuses."""

import json
import random
import runpy
import shutil
from pathlib import Path
from typing import Any

import numpy
import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from tests.examples.recipes import EXAMPLES, refused

REPORT = runpy.run_path(str(EXAMPLES / "studies/report.py"))
WORDS = ["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht"]


def write_runs(out: Path, arms: dict[str, float], seeds: int = 1, sentences: int = 40) -> Path:
    """Writes runs whose translations have a share of wrong words."""
    draw = random.Random(3)
    references = [draw.choices(WORDS, k=draw.randint(4, 12)) for _ in range(sentences)]
    out.mkdir()
    (out / "reference.de").write_text("".join(" ".join(line) + "\n" for line in references))
    for arm, wrong in arms.items():
        for seed in range(1, seeds + 1):
            folder = out / "runs" / arm / f"seed-{seed}"
            folder.mkdir(parents=True)
            lines = [[word if draw.random() > wrong else "falsch" for word in line] for line in references]
            (folder / "test.de").write_text("".join(" ".join(line) + "\n" for line in lines))
            score = BLEU().corpus_score([" ".join(line) for line in lines], [[" ".join(r) for r in references]]).score
            (folder / "scores.json").write_text(json.dumps({"BLEU": score, "perplexity": 5.0 + seed}))
            k = f" \\\n  --linformer-k {arm[-1]}" if arm[-1].isdigit() else ""
            (folder / "command").write_text(f"fairseq-train bin \\\n  --seed {seed}{k}\n")
            (folder / "about").write_text("abc123\na processor\n")
    return out


def test_with_one_seed_p_is_that_of_sacrebleu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "12345")
    out = write_runs(tmp_path / "out", {"base": 0.2, "other": 0.27})
    found = REPORT["find_runs"](out, [])
    bootstrap = REPORT["Bootstrap"](out / "reference.de", "test.de")
    base, other = (bootstrap.scores(found[arm]) for arm in ("base", "other"))
    gain, low, high, p = bootstrap.compare(base, other)
    references = (out / "reference.de").read_text().splitlines()
    systems = [(arm, (out / f"runs/{arm}/seed-1/test.de").read_text().splitlines()) for arm in ("base", "other")]
    _, results = PairedTest(systems, {"BLEU": BLEU()}, [references], test_type="bs", n_samples=1000)()
    assert p == pytest.approx(results["BLEU"][1].p_value)
    assert gain == pytest.approx(results["BLEU"][1].score - results["BLEU"][0].score)
    assert low < gain < high


def test_seeds_are_resampled_together(tmp_path: Path) -> None:
    """BLEU of every resample is the mean over the seeds, by sacreBLEU on the sentences that were drawn."""
    out = write_runs(tmp_path / "out", {"base": 0.2}, seeds=2)
    bootstrap = REPORT["Bootstrap"](out / "reference.de", "test.de")
    runs = REPORT["find_runs"](out, [])["base"]
    scores = bootstrap.scores(runs)
    references = (out / "reference.de").read_text().splitlines()
    drawn = numpy.repeat(numpy.arange(len(references)), bootstrap.weights[7])
    expected = []
    for run in runs:
        lines = (run.folder / "test.de").read_text().splitlines()
        expected.append(BLEU().corpus_score([lines[i] for i in drawn], [[references[i] for i in drawn]]).score)
    assert scores[8] == pytest.approx(numpy.mean(expected))
    assert scores[0] == pytest.approx(numpy.mean([run.scores["BLEU"] for run in runs]))


def test_the_tables(tmp_path: Path) -> None:
    out = write_runs(tmp_path / "out", {"linformer-k4": 0.4, "transformer": 0.1, "linformer-k8": 0.2}, seeds=2)
    for path in out.glob("runs/*/*/test.de"):
        shutil.copy(path, path.with_name("test-512.de"))
    REPORT["main"]([str(out)])
    report = (out / "report.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in report.splitlines() if line.startswith("| ")]
    # the model without k is the baseline and comes first; means and deviations are over seeds
    assert [row[0] for row in rows[:4]] == ["model", "transformer", "linformer-k4", "linformer-k8"]
    compared = ["BLEU against transformer", "p", "512: BLEU against transformer", "p"]
    assert rows[0] == ["model", "seeds", "perplexity", "BLEU", *compared]
    assert rows[1][2] == "6.50 ± 0.71"
    assert rows[1][4:] == [""] * 4
    assert rows[2][4].startswith("-")
    assert rows[2][4:6] == rows[2][6:]
    assert "linformer-k8, seed 2: commit abc123, a processor, with `--seed 2`" in report
    assert (out / "comparison.png").exists()
    assert not (out / "curves.png").exists()
    assert "one seed" not in report.lower()
    found = REPORT["find_runs"](out, ["linformer-k4:2", "transformer"])
    assert {arm: [run.seed for run in runs] for arm, runs in found.items()} == {
        "linformer-k4": [2],
        "transformer": [1, 2],
    }


def test_of_a_resumed_training_every_update_counts_once(tmp_path: Path) -> None:
    """A kill in the second epoch repeats its start; one whose first epoch is lost has no time."""
    rows: list[dict[str, Any]] = [
        {"epoch": 1, "train_train_wall": "10", "train_wpb": "100", "train_num_updates": "50"},
        {"epoch": 2, "train_train_wall": "6", "train_wpb": "110", "train_num_updates": "80"},
    ]
    valid = [
        {"epoch": 1, "valid_ppl": ppl, "valid_num_updates": n} for n, ppl in (("40", "9"), ("60", "8"), ("60", "7"))
    ]
    log = [f"2026 | INFO | train | {json.dumps(row)}" for row in (rows[0], rows[1], rows[1])]
    log += [f"2026 | INFO | valid | {json.dumps(row)}" for row in valid]
    (tmp_path / "train.log").write_text("\n".join(log) + '\n2026 | INFO | train | {"epoch": 3, cut')
    run = REPORT["Run"]("arm", tmp_path, {})
    assert run.training == {"updates": 80, "training, s": 16, "trained tokens/s": (50 * 100 + 30 * 110) / 16}
    assert run.curve == [(40, 9.0), (60, 7.0)]
    (tmp_path / "train.log").write_text("\n".join(log[1:]))
    assert REPORT["Run"]("arm", tmp_path, {}).training == {}


def test_what_cannot_be_reported(tmp_path: Path) -> None:
    script = EXAMPLES / "studies/report.py"
    assert "no run in" in refused("python", script, tmp_path, cwd=tmp_path)
    out = write_runs(tmp_path / "out", {"a": 0.1})
    assert "the baseline b has no scores.json" in refused("python", script, out, "--baseline", "b", cwd=tmp_path)
