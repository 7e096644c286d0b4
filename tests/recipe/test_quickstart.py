"""The whole recipe on a handful of sentences: killed, resumed, repeated, extended."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.fairseq_command import run_fairseq
from linformer_fairseq.recipe.steps import locked

ROOT = Path(__file__).parents[2]
RUN = str(ROOT / "examples" / "quickstart" / "run.sh")
TINY = shlex.split(
    "--made-train 120 --made-test 6 --bpe-merges 60 --layers 1 --dim 16 --heads 2 --ffn-dim 16 --epochs 2 "
    "--max-tokens 256 --validate-updates 10 --warmup-updates 10 --beam 2 --threads 1"
)


def start(out, *extra):
    """Start the quickstart from a folder that is not the project's."""
    return subprocess.Popen(
        [RUN, "--out", str(out), *TINY, *extra],
        cwd=out.parent,
        env={**os.environ, "LINFORMER_VENV": sys.prefix},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        preexec_fn=heed_interrupts,
    )


def heed_interrupts():
    """As at a terminal: tests that a shell runs in the background inherit that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def finish(out, *extra):
    """What a whole run says."""
    process = start(out, *extra)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    return said


@pytest.mark.slow
def test_killed_resumed_repeated_and_extended(tmp_path):
    out = tmp_path / "out"
    process = start(out, "--k", "2")
    validations = (line for line in process.stdout if "validation perplexity" in line)
    for _ in range(2):  # what is saved after the first one is there when the second one is said
        next(validations)
    process.send_signal(signal.SIGKILL)
    process.stdout.close()
    process.wait()
    transformer = out / "models" / "transformer"
    assert (transformer / "checkpoints" / "checkpoint_last.pt").exists()
    assert not (transformer / "train.json").exists()

    said = finish(out, "--k", "2")
    assert "Binarising: done before" in said
    assert "Training Transformer, from where it stopped" in said
    log = (transformer / "train.log").read_text(encoding="utf-8")
    assert "Loaded checkpoint" in log
    files = {path: path.stat().st_mtime_ns for path in (out / "models").rglob("*") if path.is_file()}

    said = finish(out, "--k", "2")
    assert "..." not in said
    assert files == {path: path.stat().st_mtime_ns for path in files}

    said = finish(out, "--k", "3", "--attention", "encoder")
    assert "Training Transformer: done before" in said
    assert files == {path: path.stat().st_mtime_ns for path in files}

    names = ["Transformer", "Linformer k=3 (encoder)", "Linformer k=2 (encoder,cross)"]
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [model["model"] for model in results["models"]] == names
    for model in results["models"]:
        assert model["sentences"] == 6
        assert model["perplexity"] > 1
        assert model["parameters"] > 0
        updates = [update for update, _ in model["validation_curve"]]
        assert updates == sorted(set(updates))
        assert updates[-1] == model["training_updates"]
    report = (out / "report.md").read_text(encoding="utf-8")
    for name in names:
        assert report.count(f"| {name} ") == 3
    for plot in ("perplexity.png", "comparison.png"):
        assert plot in report
        assert (out / plot).read_bytes().startswith(b"\x89PNG")

    process = start(out, "--lr", "0.1")
    said, _ = process.communicate()
    assert process.returncode == 2
    assert "lr = 0.003, not 0.1" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_failing_command_is_named(tmp_path):
    log = tmp_path / "validate.log"
    with (
        locked(tmp_path) as lock,
        pytest.raises(UserError, match=r"fairseq-validate failed for Transformer .*validate\.log"),
    ):
        run_fairseq(
            "validate",
            ["nowhere", "--task", "translation", "--path", "none.pt"],
            log,
            threads=1,
            lock=lock,
            what="Transformer",
        )
    assert "Traceback" in log.read_text(encoding="utf-8")


@pytest.mark.slow
def test_first_failure_ends_the_other_trainings(tmp_path):
    """Nobody waits for the long training beside it to learn of it."""
    out = tmp_path / "out"
    missing = f"--linformer-args=--finetune-from-model {tmp_path / 'nowhere.pt'}"
    process = start(out, "--k", "2", "--jobs", "2", "--epochs", "100000", missing)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert "fairseq-train failed for Linformer k=2" in said.strip().splitlines()[-1]
    assert not (out / "models" / "transformer" / "train.json").exists()


@pytest.mark.slow
def test_interrupt_of_the_recipe_alone_ends_its_trainings(tmp_path):
    """As a notebook or an editor sends it; Ctrl-C would reach the trainings too."""
    for jobs in ("1", "2"):
        process = start(tmp_path / jobs, "--k", "2", "--jobs", jobs, "--epochs", "100000")
        assert any("validation perplexity" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 130, said
        assert "goes on from here" in said
