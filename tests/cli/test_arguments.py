"""Arguments are accepted, or refused in one sentence."""

import argparse

import pytest

from linformer_fairseq.cli.arguments import Parser, count, counts, cut_at_dashes, names_of, natural
from linformer_fairseq.cli.errors import UserError


def test_numbers() -> None:
    assert (count("1"), natural("0"), counts("8, 16")) == (1, 0, [8, 16])
    wrong = {count: ("0", "1.5", "1_0", str(2**31), ""), natural: ("+9", "-1"), counts: ("8,",)}
    for convert, text in ((convert, text) for convert, texts in wrong.items() for text in texts):
        with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from"):
            convert(text)


def test_names() -> None:
    convert = names_of(["one", "two", "three"], "a number")
    assert convert("three, one,three") == ["three", "one"]
    with pytest.raises(argparse.ArgumentTypeError, match=r"^'four' is not a number: choose from one, two, three$"):
        convert("one,four")


def test_what_follows_dashes_is_for_another_command() -> None:
    assert cut_at_dashes(["--k", "8"]) == (["--k", "8"], [])
    assert cut_at_dashes(["--k", "8", "--", "--lr", "--", "1"]) == (["--k", "8"], ["--lr", "--", "1"])


def test_a_refusal_is_one_sentence() -> None:
    parser = Parser(prog="x")
    parser.add_argument("--k", type=count)
    with pytest.raises(UserError, match=r"^argument --k: 'no' is not a whole number from 1 on \(see --help\)\.$"):
        parser.parse_args(["--k", "no"])


def test_help_says_the_defaults_there_are(capsys: pytest.CaptureFixture) -> None:
    parser = Parser(prog="x")
    command = parser.add_subparsers().add_parser("command")
    command.add_argument("--k", default=8, help="slots")
    command.add_argument("--out", help="folder")
    with pytest.raises(SystemExit):
        parser.parse_args(["command", "--help"])
    options = capsys.readouterr().out.split("options:")[1]
    assert "slots (default: 8)" in options
    assert options.count("default") == 1


def test_names_of_options_cannot_be_shortened() -> None:
    parser = Parser(prog="x")
    for taking in (parser, parser.add_subparsers().add_parser("command")):
        taking.add_argument("--numbers")
    for arguments in (["--number", "1"], ["command", "--number", "1"]):
        with pytest.raises(UserError):
            parser.parse_args(arguments)
