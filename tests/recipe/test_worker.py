"""The process of a training, started as the studies start it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from linformer_fairseq.recipe import worker
from linformer_fairseq.recipe.course import WORKER
from linformer_fairseq.recipe.precision import PRECISIONS
from tests.fairseq_commands import ROOT, Result, run_module, train_arguments, valid_losses


def run_alone(arguments: list[object], precision: str = "fp32") -> Result:
    return run_module(WORKER, "--precision", precision, "--", *arguments)


@pytest.mark.slow
def test_a_training_that_is_done_makes_no_update_more(data: Path, tmp_path: Path) -> None:
    """Killed between its last checkpoint and the note that it is done, say."""
    arguments = train_arguments(data, tmp_path, "--max-epoch", 0, "--max-update", 3)
    assert "num_updates: 3 >= max_update: 3" in run_alone(arguments).ok()
    before = (tmp_path / "checkpoint_last.pt").stat().st_mtime_ns
    again = run_alone(arguments).ok()
    assert "Loaded checkpoint" in again
    assert "max_update: 3" not in again.partition("Loaded checkpoint")[2]
    assert (tmp_path / "checkpoint_last.pt").stat().st_mtime_ns == before


@pytest.mark.slow
def test_no_checkpoint_is_left_out_at_the_end_of_an_epoch(data: Path, tmp_path: Path) -> None:
    """Where fairseq writes none of --save-interval-updates; a mean of the last ones would have older ones instead."""
    arguments = train_arguments(
        data, tmp_path, "--max-epoch", 3, "--save-interval-updates", 1, "--no-epoch-checkpoints"
    )
    output = run_alone([*arguments, "--keep-interval-updates", 99]).ok()
    updates = int(re.findall(r"num_updates (\d+)", output)[-1])
    saved = {int(path.stem.split("_")[-1]): path for path in tmp_path.glob("checkpoint_*_*.pt")}
    assert saved.keys() == set(range(1, updates + 1))
    assert saved[updates].read_bytes() == (tmp_path / "checkpoint_last.pt").read_bytes()
    assert {path.name.split("_")[1] for path in saved.values()} == {"1", "2", "3"}


@pytest.mark.slow
def test_bfloat16_on_the_cpu(data: Path, tmp_path: Path) -> None:
    """Where fairseq-train's own flag asks for a TPU. Its checkpoints are in float32 whatever the precision."""
    result = run_alone(train_arguments(data, tmp_path), "bf16")
    first, second = valid_losses(result.ok())
    assert second < first
    weight = torch.load(tmp_path / "checkpoint_best.pt")["model"]["encoder.layers.0.fc1.weight"]
    assert torch.equal(weight, weight.bfloat16().float())


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_gpu(data: Path, tmp_path: Path, precision: str) -> None:
    arguments = [argument for argument in train_arguments(data, tmp_path, "--max-epoch", 4) if argument != "--cpu"]
    command = [sys.executable, "-m", WORKER, "--precision", precision, "--", *map(str, arguments)]
    trained = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert trained.returncode == 0, trained.stderr[-3000:]
    losses = valid_losses(trained.stdout + trained.stderr)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["DATA", "--cpu"], "unrecognized arguments: DATA"),
        (["--", "DATA", "--cpu", "--bf16"], "--bf16 is set by the worker"),
        (["--", "DATA", "--distributed-port=9"], "--distributed-port is set by the worker"),
        (["--precision", "fp16", "--", "DATA", "--cpu"], "--precision fp16 needs a GPU"),
        (["--", "DATA"], "No GPU is visible here"),
    ],
)
def test_refusals(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str], said: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert worker.main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert said in error
    assert error.count("\n") == 1
