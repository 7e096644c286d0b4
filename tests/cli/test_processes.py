"""A process ends with the one that started it, and a failure ends those that run beside it."""

import os
import pickle
import signal
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch

from linformer_fairseq.cli.errors import CommandError
from linformer_fairseq.cli.processes import die_with_parent, run_command, run_in_parallel
from tests.test_checkpoints import Smuggled


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end it")
def test_a_child_ends_with_its_parent() -> None:
    reading, writing = os.pipe()
    parent = os.fork()
    if parent == 0:
        own = os.getpid()
        if os.fork() == 0:
            die_with_parent(own)
            os.write(writing, b"ready")
            time.sleep(20)
            os.write(writing, b"survived")
            os._exit(0)
        os.read(reading, 5)
        os._exit(0)
    os.close(writing)
    os.waitpid(parent, 0)
    assert os.read(reading, 8) == b""  # nobody is left who could write
    os.close(reading)


@pytest.mark.parametrize("orphan", [True, False])
def test_a_process_that_starts_as_an_orphan_ends(orphan: bool) -> None:
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        die_with_parent(os.getpid() if orphan else parent)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == (signal.SIGKILL if orphan else 0)


@pytest.mark.skipif(
    not hasattr(torch.serialization, "add_safe_globals"), reason="its safe loader cannot read fairseq's"
)
def test_a_started_command_runs_no_code_from_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No code runs, whichever loader the command asks for and whatever the user's shell sets."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    path, marker = tmp_path / "checkpoint_last.pt", tmp_path / "ran"
    torch.save({"model": Smuggled(marker)}, path)
    load = f"import torch; torch.load({str(path)!r}, weights_only={False})"
    with pytest.raises(CommandError, match="loading failed"):
        run_command([sys.executable, "-c", load], "loading", tmp_path / "log", threads=1)
    assert not marker.exists()
    assert "unsupported GLOBAL posix.system" in (tmp_path / "log").read_text(encoding="utf-8")
    pickle.loads(pickle.dumps(Smuggled(marker)))
    assert marker.exists(), "it would have run"


def test_the_first_failure_ends_the_other_commands(tmp_path: Path) -> None:
    """The failure is reported in one sentence that names the log."""
    wait = [sys.executable, "-c", "import time; print('ready', flush=True); time.sleep(60); print('at its end')"]
    log = tmp_path / "wait"
    fail = ["sh", "-c", f"while ! grep -qs ready {log}; do sleep 0.1; done; echo because; exit 3"]
    tasks = [
        partial(run_command, wait, "waiting", log, threads=1),
        partial(run_command, fail, "it", tmp_path / "fail", threads=1, what="Transformer"),
    ]
    with pytest.raises(
        CommandError, match=r"^it failed for Transformer \(exit status 3\): its last lines are in .*/fail; "
    ):
        run_in_parallel(tasks, jobs=2)
    assert (tmp_path / "fail").read_text() == "because\n"
    assert log.read_text() == "ready\n"
