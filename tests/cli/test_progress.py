"""Bars move on a terminal, and are rare in a log."""

import io
import os
import sys
from pathlib import Path

import pytest

from linformer_fairseq.cli import progress
from linformer_fairseq.cli.progress import bar, growing


def test_what_ends_soon_has_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with bar(100, "x.tgz", "B") as progress:
        progress.update(100)
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHORT_SECONDS", 0.0)
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with bar(3_000_000, "x.tgz", "B") as shown:
        for _ in range(3000):
            shown.update(1000)
    first, last = log.getvalue().strip().split("\r")
    assert "0%" in first
    assert "x.tgz: 100%" in last
    assert "3.00M/3.00M" in last


def test_a_terminal_sees_it_move(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = os.openpty()
    with open(controller, "rb"), open(terminal, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        assert bar(1, "x.tgz", "B").mininterval < 1


def test_a_folder_that_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files may come and go while they are watched, and watching ends with the writer, even if it fails."""
    for name, seconds in (("SHORT_SECONDS", 0.0), ("LIVE_SECONDS", 0.001), ("LOG_SECONDS", 0.0)):
        monkeypatch.setattr(progress, name, seconds)
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with growing(tmp_path, "*.bin", 1000, "binarising"):
        for number in range(100):
            (tmp_path / f"{number}.bin").write_bytes(b"x" * 10)
            (tmp_path / f"{number}.txt").write_bytes(b"x" * 10)
        for _ in range(300):
            (tmp_path / "passing.bin").touch()
            (tmp_path / "passing.bin").unlink()
    assert "binarising: 100%" in log.getvalue().strip().split("\r")[-1]
    with pytest.raises(ZeroDivisionError), growing(tmp_path, "*.bin", 1000, "binarising"):
        raise ZeroDivisionError
