"""The script that checks and times the plugin on a GPU, tried on a processor."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from linformer_fairseq.cli.errors import UserError
from tests.fairseq_commands import ROOT, run_module


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("gpu_check")


def test_every_part_of_a_dry_run(script: ModuleType, tmp_path: Path) -> None:
    """Their commands, in processes that have imported the libraries already."""
    tests, *benchmarks = script.PARTS
    assert script.command(tests, tmp_path, dry=True) == script.command(tests, tmp_path, dry=False)
    for part in benchmarks:
        _, program, *arguments = script.command(part, tmp_path / part.name, dry=True)
        assert program == str(ROOT / "scripts/benchmark.py")
        run_module("scripts.benchmark", *arguments).ok()
        assert "16 × 2" in (tmp_path / part.name / "benchmark.md").read_text()


def test_commands_for_a_gpu_fit_each_other(script: ModuleType, tmp_path: Path) -> None:
    """Their flags are taken, as far as a machine without a GPU can say."""
    for part in script.PARTS[1:]:
        words = script.command(part, tmp_path, dry=False)[2:]
        device = words.index("--device") + 1
        assert words[device] == "cuda"
        assert ("--dtype" in words) != any(word.startswith("--training=") for word in words)
        assert max(part.lengths) <= part.tokens
    assert sum(part.seconds for part in script.PARTS) <= 9 * 60


def test_a_dry_run(script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.main(["--out", str(tmp_path / "out"), "--dry", "--only", "tests"])
    assert capsys.readouterr().out.startswith("tests: done (")
    assert "skipped" in (tmp_path / "out/tests.txt").read_text()


def test_what_fails_or_takes_too_long(script: ModuleType, tmp_path: Path) -> None:
    """Is said, and ends with all that it has started."""
    log = tmp_path / "log.txt"
    assert (
        script.run([sys.executable, "-c", "print(7); raise SystemExit(3)"], log, 60)
        == f"failed with status 3; see {log}"
    )
    assert log.read_text().splitlines()[1:] == ["7"]
    endless = "trap '' TERM; (while sleep 0.01; do echo > alive; done) & wait"
    assert script.run(["bash", "-c", f"cd {tmp_path}; {endless}"], log, 0.5) == f"stopped, as its time is up; see {log}"
    (tmp_path / "alive").unlink(missing_ok=True)  # a busy machine may not have begun with it
    time.sleep(0.3)  # in which what goes on would write it again
    assert not (tmp_path / "alive").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_it_needs_a_gpu(script: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs a GPU that torch sees: add --dry"):
        script.main(["--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


def test_it_ends_in_time(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "LEAST", 3600)
    with pytest.raises(UserError, match=r"^tests, modules, .* did not end well: see the logs in"):
        script.main(["--out", str(tmp_path), "--dry"])
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(script.PARTS)
    assert all("left out, as the time is up" in line for line in said)
