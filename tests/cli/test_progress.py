"""Bars of bytes: alive on a terminal, rare in a log."""

import io
import os
import sys

import pytest

from linformer_fairseq.cli import progress
from linformer_fairseq.cli.progress import byte_bar


def test_what_ends_soon_has_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with byte_bar("x.tgz", 100) as bar:
        bar.update(100)
    assert capsys.readouterr() == ("", "")


def test_a_log_gets_few_states(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "HIDDEN_SECONDS", 0.0)
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    with byte_bar("x.tgz", 3_000_000, start=1_000_000) as bar:
        assert min(bar.mininterval, bar.maxinterval) >= 30
        for _ in range(2000):
            bar.update(1000)
    states = log.getvalue().strip().split("\r")
    assert len(states) == 2  # the first and the last
    assert "33%" in states[0]
    assert "x.tgz: 100%" in states[1]
    assert "3.00M/3.00M" in states[1]


def test_a_terminal_sees_it_move(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, terminal = os.openpty()
    with open(controller, "rb"), open(terminal, "w") as screen:
        monkeypatch.setattr(sys, "stderr", screen)
        assert byte_bar("x.tgz", None).mininterval < 1
