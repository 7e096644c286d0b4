"""The study from end to end, in a tiny size, and its refusals."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from linformer_fairseq.quality.arguments import parse
from linformer_fairseq.quality.trainings import trainings
from linformer_fairseq.quality.variants import VARIANTS
from linformer_fairseq.recipe.flags import check_flags
from tests.fairseq_commands import ROOT, run_module

AVERAGE = 2 if hasattr(torch.serialization, "add_safe_globals") else 0  # needs torch 2.4
TURNED = ("encoder,cross", "encoder,cross,decoder")
"""What the recipe of conversions converts."""
pytestmark = pytest.mark.slow


def arguments(text: Path, out: Path, *more: object) -> list[object]:
    sizes = (
        "--layers 1 --dim 16 --heads 2 --ffn-dim 16 --bpe-merges 10 --epochs 1 --max-tokens 200 --validate-updates 1 "
        f"--average {AVERAGE}"
    )
    return ["--data", text, "--out", out, *sizes.split(), "--k", 4, "--warmup-updates", 2, *more]


def test_report_and_resumption(text: Path, tmp_path: Path) -> None:
    asked = ["--variants", "transformer,two-level-all", "--seeds", "2"]
    said = run_module("linformer_fairseq.quality", *arguments(text, tmp_path, *asked)).ok()
    assert "The report is in" in said
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    assert [(row["variant"], row["k"], row["seed"]) for row in results] == [
        ("transformer", None, 2),
        ("two-level-all", 4, 2),
    ]
    lengths = [len(line.split()) + 1 for line in (tmp_path / "text" / "bpe" / "valid.en").read_text().splitlines()]
    for row in results:
        assert row["perplexity"] > 1
        assert [bucket["sentences"] for bucket in row["by_length"]] == [
            count
            for count in (
                sum(n <= 4 for n in lengths),
                sum(5 <= n <= 8 for n in lengths),
                sum(n > 8 for n in lengths),
            )
            if count
        ]
        assert set(row["entropy"]) == {"encoder", "cross", "decoder"}
    command = json.loads(
        (tmp_path / "runs/two-level-all-k4/seed-2/models/linformer-k4-encoder-cross-decoder/train.json").read_text()
    )["command"]
    for flag, value in (
        ("--seed", "2"),
        ("--linformer-projection", "two-level"),
        ("--linformer-window", "2"),
    ):
        assert command[command.index(flag) + 1] == value
    report = (tmp_path / "report.md").read_text()
    assert "## The valid set" in report
    assert "## The test set" not in report
    assert "two-level-all, k = 4" in report
    translates = f"the mean of its last {AVERAGE} saves" if AVERAGE else "its best save"
    assert f"translated with {translates} and beam 4" in report

    again = run_module("linformer_fairseq.quality", *arguments(text, tmp_path, *asked, "--test")).ok()
    assert again.count("done before") == 5  # the text, two trainings, two translations
    assert "Translating the test set with" in again
    assert "## The test set" in (tmp_path / "report.md").read_text()
    assert {path.name for path in tmp_path.glob("*.png")} == {"valid.png", "test.png"}

    folder = tmp_path / "runs/transformer/seed-2"
    links = {path: path.lstat().st_mtime_ns for path in folder.iterdir() if path.is_symlink()}
    assert {path.name: path.readlink() for path in links} == {
        name: Path("../../../text", name) for name in ("bin", "bpe", "raw", "tok")
    }
    refused = run_module("linformer_fairseq.quality", *arguments(text, tmp_path, *asked, "--dropout", 0.5))
    assert "was made with dropout = " in refused.sentence()
    alone = ["--variants", "two-level-all", "--seeds", "2"]
    run_module("linformer_fairseq.quality", *arguments(text, tmp_path, *alone)).ok()
    assert not list(tmp_path.glob("*.png"))
    assert "## Plots" not in (tmp_path / "report.md").read_text()
    # a training that is under way finds its text
    assert {path: path.lstat().st_mtime_ns for path in folder.iterdir() if path.is_symlink()} == links


@pytest.mark.skipif(not AVERAGE, reason="converting needs torch 2.4")
def test_conversion_recipe(text: Path, tmp_path: Path) -> None:
    """Converted, fine-tuned, translated and scored; nothing of it twice."""
    run_module("linformer_fairseq.quality", *arguments(text, tmp_path, "--variants", "transformer", "--seeds", 2)).ok()

    def convert() -> str:
        settings = {"STUDY": tmp_path, "SEEDS": 2, "K": 4, "THREADS": 1, "LINFORMER_VENV": sys.prefix}
        environment = os.environ | {name: str(value) for name, value in settings.items()}
        done = subprocess.run([ROOT / "examples/quality/convert.sh"], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = convert()
    *_, table = said.rpartition("seed 2, k = 4, valid set:")
    folder = tmp_path / "converted/k4/seed-2"
    for name in ("transformer", *TURNED, *(f"{name}-tuned" for name in TURNED)):
        assert len((folder / "valid" / name).read_text().splitlines()) == 12
        assert re.search(f"/{name} .*[0-9]", table)
    for name in TURNED:
        before = torch.load(folder / f"{name}.pt", weights_only=True)
        after = torch.load(folder / f"{name}-tuned" / "checkpoint_last.pt", weights_only=True)
        settings = [vars(state["cfg"]["model"]) for state in (before, after)]
        of_linformer = [{key: value for key, value in s.items() if key.startswith("linformer_")} for s in settings]
        assert of_linformer[0] == of_linformer[1]
        assert of_linformer[0]["linformer_attention"] == name
        assert before["model"].keys() == after["model"].keys()
        assert any(not torch.equal(weight, after["model"][key]) for key, weight in before["model"].items())
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert said.endswith(convert())
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == kept


def test_refusals(text: Path, tmp_path: Path) -> None:
    for more, said in (
        (["--variants", "magic"], "'magic' is not a variant: choose of transformer"),
        (["--seed", 3], "--seed is set by the study: use --seeds and --variants"),
        (["--linformer-args=--linformer-k 3"], "--linformer-args is set by the study"),
        (["--k", 0], "is not a whole number from 1 on"),
        (["--magic"], "unrecognized arguments: --magic"),
    ):
        result = run_module("linformer_fairseq.quality", *arguments(text, tmp_path / "out", *more))
        assert said in result.sentence()
        assert result.status == 2
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_can_be_trained(name: str, text: Path, tmp_path: Path) -> None:
    study = parse([str(word) for word in ["--data", text, "--out", tmp_path, "--variants", name, "--k", 8]])
    for training in trainings(study):
        check_flags(training.model, training.settings, training.out)
