"""examples/wmt14_en_de/train.sh and slurm.sh: what they train is what fairseq-train does, and it survives kills."""

import fcntl
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from tests.examples.recipes import EXAMPLES, SMALL, refused, run, start
from tests.warm import commands

pytestmark = pytest.mark.slow

ARCH = ["linformer_transformer", *SMALL]
UPDATES = ["--validate-interval-updates", "4", "--save-interval-updates", "4"]
GLOO = "--cpu --distributed-backend gloo --ddp-backend legacy_ddp --distributed-no-spawn"


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_checkpoint(run / "checkpoint_last.pt")["model"]


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Waits until something is so, as long as a process lives."""
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)


def end(process: subprocess.Popen[str], folder: Path) -> None:
    """Kills a script and all that it has started, and waits until they have ended."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    with open(folder / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)


def test_the_weights_are_those_of_the_printed_command(study: Path, tmp_path: Path) -> None:
    """Also the text of RUN/command runs as it is, but for the folder of its results."""
    trained = study / "study/runs/linformer-k4/seed-2"
    command = (trained / "command").read_text()
    words = shlex.split(command, comments=True)
    assert words[0] == "fairseq-train"
    assert words[words.index("--arch") + 1] == "linformer_transformer"
    assert words[-2:] == ["--save-dir", str(trained)]
    run("bash", "-c", command.replace(str(trained), str(tmp_path)), cwd=tmp_path).ok()
    assert same(weights(tmp_path), weights(trained))


def test_a_finished_run_is_left_alone_and_other_flags_are_refused(study: Path, tmp_path: Path) -> None:
    folder = study / "study/runs/linformer-k4/seed-1"
    given = [study / "study/bin", folder, *ARCH, "--max-update", 12, *UPDATES, "--linformer-k", 4, "--seed", 1]
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.pt")}
    assert run("train.sh", *given, cwd=tmp_path).ok() == f"{folder}: already trained\n"
    sentence = refused("train.sh", *given, "--lr", "1e-2", cwd=tmp_path)
    assert sentence.endswith("(<: then, >: now): > --lr 1e-2; go on with those, or name another RUN.")
    sentence = refused("train.sh", *given[:-3], 8, *given[-2:], cwd=tmp_path)
    assert "now): < --linformer-k 4 > --linformer-k 8;" in sentence
    assert {path.name: path.stat().st_mtime_ns for path in folder.glob("*.pt")} == before
    assert "BIN RUN ARCH" in refused("train.sh", study / "study/bin", cwd=tmp_path)
    assert "has no dict.en.txt" in refused("train.sh", study, folder, "transformer", cwd=tmp_path)
    assert "look for a TPU" in refused("train.sh", *given, cwd=tmp_path, DEVICE="--bf16")


def test_it_goes_on_after_kills(study: Path, tmp_path: Path) -> None:
    """The script alone is killed, then all of it; a checkpoint that the kill has cut short does no harm."""
    folder = tmp_path / "a run"  # a name with a space
    given = [study / "study/bin", folder, *ARCH, *UPDATES, "--max-update", 400]
    first = start("train.sh", *given, cwd=tmp_path)
    wait_for(lambda: list(folder.glob("checkpoint_*_4.pt")), first)
    os.kill(first.pid, signal.SIGKILL)  # fairseq-train lives on
    sentence = refused("train.sh", *given, cwd=tmp_path)
    assert "is in use: another call is training there, or processes of a killed call still run" in sentence
    assert "wait until they end" in sentence
    end(first, folder)

    (folder / "checkpoint_last.pt").write_bytes(b"half")
    other = [*given[:-1], 401]
    assert "< --max-update 400 > --max-update 401" in refused("train.sh", *other, cwd=tmp_path)
    second = start("train.sh", *given, cwd=tmp_path)
    log = folder / "train.log"
    wait_for(lambda: "Loaded checkpoint" in log.read_text(errors="replace"), second)
    assert "checkpoint_last.pt (epoch" in log.read_text().split("Loaded checkpoint")[1]
    end(second, folder)


def test_flags_that_fairseq_refuses_can_be_put_right(study: Path, tmp_path: Path) -> None:
    """Nothing has been trained, so the same RUN may begin with others; --arch as given does not exist."""
    given = [study / "study/bin", tmp_path / "run"]
    result = run("train.sh", *given, "linformer_transformr", *SMALL, cwd=tmp_path)
    assert result.status == 1
    assert "error: fairseq-train failed, see" in result.output.splitlines()[-1]
    assert "invalid choice: 'linformer_transformr'" in result.output.splitlines()[-1]
    dry = run("train.sh", *given, *ARCH, cwd=tmp_path, DRY_RUN="1").ok()
    assert dry.startswith("fairseq-train ")
    assert not (tmp_path / "run/train.log").exists() or "done training" not in (tmp_path / "run/train.log").read_text()


def stub(folder: Path) -> Path:
    """Writes commands that behave as Slurm's would with two machines, and returns their folder."""
    folder.mkdir()
    (folder / "scontrol").write_text("#!/bin/sh\necho 127.0.0.1\n")
    both = 'SLURM_NODEID=1 "$@" &\nSLURM_NODEID=0 "$@"\nstatus=$?\nwait $! || status=$?\nexit $status\n'
    (folder / "srun").write_text(f"#!/usr/bin/env bash\nshift\n{both}")
    for command in folder.iterdir():
        command.chmod(0o755)
    return folder


def test_two_machines_train_one_model(study: Path, tmp_path: Path) -> None:
    """An update has the words of both, and the first one alone keeps a record."""
    folder = tmp_path / "run"
    variables = {
        "PATH": f"{stub(tmp_path / 'slurm')}:{commands()}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "SLURM_SUBMIT_DIR": str(EXAMPLES.parent),
        **{"SLURM_JOB_NODELIST": "two", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_ID": str(os.getpid()), "DEVICE": GLOO},
    }
    given = [study / "study/bin", folder, *ARCH, "--max-update", 4]
    said = run("slurm.sh", *given, cwd=tmp_path, **variables).ok()
    words = [float(part.split('"')[0]) for part in said.split('"train_wpb": "')[1:]]
    alone = (study / "study/runs/linformer-k4/seed-1/train.log").read_text()
    assert words[0] > 1.7 * float(alone.split('"train_wpb": "')[1].split('"')[0])
    assert {path.name for path in folder.iterdir()} >= {"command", "train.log", "train-rank1.log", "checkpoint_last.pt"}


def test_processes_that_train_alone_are_stopped(study: Path, tmp_path: Path) -> None:
    """On a CPU fairseq takes the variables of torchrun for those of a training of its own, without a word."""
    together = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    result = run("train.sh", study / "study/bin", tmp_path / "run", *ARCH, cwd=tmp_path, **together)
    assert result.status == 1
    assert "as one process alone holds (up to 512): look at the --distributed flags" in result.output.splitlines()[-1]
