"""examples/wmt14_en_de on a small mirror: run to its end, killed and rerun, repeated, extended, on two processes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from linformer_fairseq.recipe.logs import read_training
from tests.recipe.mirror import build_mirror
from tests.recipe.test_wmt14 import marked, training

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "wmt14_en_de"
MODEL = "transformer_tiny"
CAN_AVERAGE = hasattr(__import__("torch").serialization, "add_safe_globals")
TINY = {
    "BPE_MERGES": "100",
    "ARCH": MODEL,
    "K": "2",
    "MAX_EPOCH": "2",
    "MAX_UPDATE": "0",
    "MAX_TOKENS": "300",
    "UPDATE_BATCHES": "2",
    "WARMUP_UPDATES": "10",
    "DROPOUT": "0",
    "VALIDATE_UPDATES": "4",
    "KEEP_CHECKPOINTS": "2",
    "AVERAGE": "2" if CAN_AVERAGE else "0",
    "LENGTH_TOKENS": "256",
    "THREADS": "1",
}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("whole-recipe")]


@dataclass
class Finished:
    """A run that nothing disturbed."""

    out: Path
    server: Path
    said: str
    seconds: float


def start(script: str, server: Path, out: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a script from a folder that is not the project's."""
    environment = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", "NNODES")}
    own = {"LINFORMER_VENV": sys.prefix, "DATA_DIR": str(out), "WMT_BASE_URL": server.as_uri()}
    return subprocess.Popen(
        [SCRIPTS / f"{script}.sh", *arguments],
        cwd=out.parent,
        env={**environment, **own, **TINY, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


def finish(script: str, server: Path, out: Path, *arguments: str, **variables: str) -> str:
    process = start(script, server, out, *arguments, **variables)
    said, _ = process.communicate()
    assert process.returncode == 0, said[-3000:]
    return said


def refuse(script: str, server: Path, out: Path, *arguments: str, **variables: str) -> str:
    """The sentence that it ends with."""
    process = start(script, server, out, *arguments, **variables)
    said, _ = process.communicate()
    assert process.returncode == 2, said[-3000:]
    assert "Traceback" not in said
    return said.strip().splitlines()[-1]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("whole")
    build_mirror(folder / "mirror", training(300), marked(1000, 20), marked(2000, 12))
    began = time.monotonic()
    said = finish("compare", folder / "mirror", folder / "out")
    return Finished(folder / "out", folder / "mirror", said, time.monotonic() - began)


def binarised(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "bin").iterdir()}


def test_everything_is_reported(finished: Finished) -> None:
    results = json.loads((finished.out / "results.json").read_text(encoding="utf-8"))
    names = ["Transformer", "Linformer k=2 (encoder,cross)"]
    assert [model["model"] for model in results["models"]] == names
    for model in results["models"]:
        assert model["sentences"] == 12
        assert model["perplexity"] > 1
        assert model["parameters"] > 0
        assert {"bleu", "compound_bleu", "chrf", "signature"} <= set(model)
        assert len(model["checkpoints"]) == (2 if CAN_AVERAGE else 1)
        updates = [update for update, _ in model["validation_curve"]]
        assert updates == sorted(set(updates))
        assert updates[-1] == model["training_updates"]
    assert results["models"][0]["bleu_against_transformer"] is None
    assert {"difference", "low", "high", "p_value"} == set(results["models"][1]["bleu_against_transformer"])
    assert {row["model"] for row in results["lengths"]["rows"]} == set(names)
    assert {(row["length"], row["sentences"]) for row in results["lengths"]["rows"]} == {(256, 1)}
    report = (finished.out / "report.md").read_text(encoding="utf-8")
    for title in ("Model performance", "Training time", "Inference time", "Published by the study"):
        assert f"## {title}\n" in report
    for name in names:
        assert report.count(f"| {name} ") == 3
    for plot in ("perplexity.png", "comparison.png", "lengths.png"):
        assert plot in report
        assert (finished.out / plot).read_bytes().startswith(b"\x89PNG")
    page = (finished.out / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") >= 3
    assert "Not comparable" in page
    assert "chrF" in finished.said
    assert "sentences/s" in finished.said


def test_killed_at_five_random_moments(finished: Finished, tmp_path: Path) -> None:
    """Whatever step a kill meets, the binarised text is the same in the end, byte for byte, and so are the models."""
    out = tmp_path / "out"
    moments = random.Random(time.time_ns())
    for _ in range(5):
        process = start("compare", finished.server, out)
        wait = moments.uniform(0.5, finished.seconds / 2)
        try:
            process.communicate(timeout=wait)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
    finish("compare", finished.server, out)
    assert binarised(out) == binarised(finished.out)
    for slug in ("transformer", "linformer-k2-encoder-cross"):
        curves = [
            read_training((folder / "models" / slug / "train.log").read_text()).curve for folder in (out, finished.out)
        ]
        assert [update for update, _ in curves[0]] == [update for update, _ in curves[1]]
        assert [ppl for _, ppl in curves[0]] == pytest.approx([ppl for _, ppl in curves[1]], rel=1e-3)
    assert not list(out.rglob("*.part"))

    files = {path: path.stat().st_mtime_ns for path in (out / "models").rglob("*") if path.name != ".lock"}
    files = {path: time for path, time in files.items() if path.is_file()}
    said = finish("compare", finished.server, out, "--k", "3", "--attention", "encoder")
    assert "Preparing the text: done before" in said
    assert "Training Transformer: done before" in said
    assert files == {path: path.stat().st_mtime_ns for path in files}
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    names = ["Transformer", "Linformer k=3 (encoder)", "Linformer k=2 (encoder,cross)"]
    assert [model["model"] for model in results["models"]] == names


def test_finished_models_are_shown_again(finished: Finished) -> None:
    said = finish("evaluate", finished.server, finished.out, f"linformer_{MODEL}", "--k", "2")
    assert "Linformer k=2 (encoder,cross): perplexity" in said
    assert "Transformer:" not in said
    for score in ("sacreBLEU", "compounds split: BLEU", "chrF", "tokens/s"):
        assert score in said


def test_what_is_refused(finished: Finished) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.out.rglob("*") if path.name != ".lock"}
    out, server = finished.out, finished.server
    assert "lr = 0.0007, not 0.1" in refuse("compare", server, out, LR="0.1")
    assert "bpe_merges = 100, not 90" in refuse("prepare", server, out, BPE_MERGES="90")
    assert "beam = 4, not 3" in refuse("evaluate", server, out, MODEL, BEAM="3")
    assert "has not been trained to its end" in refuse("evaluate", server, out, f"linformer_{MODEL}", "--k", "3")
    assert "name the model first" in refuse("train", server, out)
    assert "2 batches an update cannot be shared evenly by 3 processes" in refuse(
        "train", server, out, MODEL, PROCESSES="3"
    )
    assert "prepare the text first" in refuse("train", server, out.parent / "other", MODEL)
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_two_processes_learn_what_one_does(finished: Finished, tmp_path: Path) -> None:
    """The baseline again, each update's two batches computed by a process each."""
    out = tmp_path / "out"
    shutil.copytree(finished.out, out, ignore=shutil.ignore_patterns("models", "results.json", "report.*"))
    finish("train", finished.server, out, MODEL, PROCESSES="2")
    logs = [folder / "models" / "transformer" / "train.log" for folder in (out, finished.out)]
    two, one = (read_training(log.read_text(encoding="utf-8")) for log in logs)
    assert two.updates == one.updates
    assert two.tokens == pytest.approx(one.tokens)
    losses = [{update: values["valid_loss"] for update, values in log.validations.items()} for log in (two, one)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    facts = json.loads((out / "models" / "transformer" / "train.json").read_text(encoding="utf-8"))
    assert facts["processes"] == 2
