"""The quickstart on a handful of sentences, and how it ends when something else ends it."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.recipe.fairseq_command import command_line
from linformer_fairseq.recipe.steps import locked

ROOT = Path(__file__).parents[2]
RUN = str(ROOT / "examples" / "quickstart" / "run.sh")
TINY = shlex.split(
    "--made-train 120 --made-test 6 --bpe-merges 60 --layers 1 --dim 16 --heads 2 --ffn-dim 16 --epochs 2 "
    "--max-tokens 256 --validate-updates 10 --warmup-updates 10 --beam 2 --threads 1"
)

pytestmark = pytest.mark.slow


def start(out: Path, *extra: str) -> subprocess.Popen[str]:
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


def heed_interrupts() -> None:
    """As at a terminal: tests that a shell runs in the background inherit that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_it_reports_on_all_its_models(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(out, "--k", "2")
    said, _ = process.communicate()
    assert process.returncode == 0, said
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    names = ["Transformer", "Linformer k=2 (encoder,cross; two-level)"]
    assert [model["model"] for model in results["models"]] == names
    assert all(
        model["sentences"] == 6 and model["checkpoints"] == ["checkpoint_best.pt"] for model in results["models"]
    )
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "made by the recipe's own grammar" in report
    assert "Published by the study" not in report
    assert not (out / "lengths.json").exists()


def test_a_failing_command_is_named(tmp_path: Path) -> None:
    log = tmp_path / "validate.log"
    command = command_line("validate", ["nowhere", "--task", "translation", "--path", "none.pt"])
    with (
        locked(tmp_path) as lock,
        pytest.raises(UserError, match=r"fairseq-validate failed for Transformer .*validate\.log"),
    ):
        run_command(command, "fairseq-validate", log, threads=1, lock=lock, what="Transformer")
    assert "Traceback" in log.read_text(encoding="utf-8")


def test_first_failure_ends_the_other_trainings(tmp_path: Path) -> None:
    """Nobody waits for the long training beside it to learn of it."""
    out = tmp_path / "out"
    missing = f"--linformer-args=--finetune-from-model {tmp_path / 'nowhere.pt'}"
    process = start(out, "--k", "2", "--jobs", "2", "--epochs", "100000", missing)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert "fairseq-train failed for Linformer k=2" in said.strip().splitlines()[-1]
    assert not (out / "models" / "transformer" / "train.json").exists()


def test_interrupt_of_the_recipe_alone_ends_its_trainings(tmp_path: Path) -> None:
    """As a notebook or an editor sends it; Ctrl-C would reach the trainings too."""
    for jobs in ("1", "2"):
        process = start(tmp_path / jobs, "--k", "2", "--jobs", jobs, "--epochs", "100000")
        assert any("validation perplexity" in line for line in process.stdout)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 130, said
        assert "goes on from here" in said
