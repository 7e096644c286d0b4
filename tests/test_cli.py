"""What the commands share: arguments are accepted or refused in one sentence, files are written whole or not at all,
bars move on a terminal and are rare in a log, and commands end with a status."""

import argparse
import errno
import io
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from linformer_fairseq.cli import progress
from linformer_fairseq.cli.arguments import Parser, ascending, count, natural
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import replacing
from linformer_fairseq.cli.main import exit_status
from linformer_fairseq.cli.progress import bar


def test_numbers() -> None:
    assert (count("1"), natural("0"), ascending("16, 8,16")) == (1, 0, (8, 16))
    wrong = {count: ("0", "1.5", "1_0", str(2**31), ""), natural: ("+9", "-1"), ascending: ("8,",)}
    for convert, text in ((convert, text) for convert, texts in wrong.items() for text in texts):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from"):
            convert(text)


def test_a_refusal_is_one_sentence() -> None:
    parser = Parser(prog="x")
    parser.add_argument("--k", type=count)
    with pytest.raises(UserError, match=r"^argument --k: 'no' is not a whole number from 1 on \(see --help\)\.$"):
        parser.parse_args(["--k", "no"])


def test_help_says_the_defaults_there_are(capsys: pytest.CaptureFixture) -> None:
    parser = Parser(prog="x")
    parser.add_argument("--k", default=8, help="slots")
    parser.add_argument("--out", help="folder")
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    options = capsys.readouterr().out.split("options:")[1]
    assert "slots (default: 8)" in options
    assert options.count("default") == 1


def test_names_of_options_cannot_be_shortened() -> None:
    parser = Parser(prog="x")
    parser.add_argument("--numbers")
    with pytest.raises(UserError):
        parser.parse_args(["--number", "1"])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    with replacing(path) as part:
        part.write_text("whole")
    with pytest.raises(UnicodeEncodeError), replacing(path) as part:
        part.write_text("\ud800", encoding="utf-8")
    assert path.read_text() == "whole"
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.txt"]


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (UserError("Name a folder."), 2, "error: Name a folder.\n"),
        (OSError(errno.ENOSPC, "No space left on device", "out/x"), 1, "error: out/x: No space left on device.\n"),
        (OSError(errno.EPIPE, "Broken pipe"), 1, "error: the output folder: Broken pipe.\n"),
        (KeyboardInterrupt(), 130, "interrupted: run it again\n"),
    ],
)
def test_a_failure_is_one_sentence(
    error: BaseException, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert exit_status(raising(error), interrupted="run it again") == status
    assert capsys.readouterr() == ("", said)


def test_success_and_mistakes_of_the_program() -> None:
    assert exit_status(lambda: None, interrupted="") == 0
    with pytest.raises(ZeroDivisionError):  # with its traceback
        exit_status(raising(ZeroDivisionError()), interrupted="")


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
