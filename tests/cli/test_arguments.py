"""Arguments are taken or refused in one sentence."""

import argparse

import pytest

from linformer_fairseq.cli.arguments import Parser, count, counts, natural
from linformer_fairseq.cli.errors import UserError


def test_numbers() -> None:
    assert (count("1"), natural("0"), counts("8, 16")) == (1, 0, [8, 16])
    for convert, text in [
        (count, "0"),
        (count, "1.5"),
        (count, "1_0"),
        (natural, "+9"),
        (count, str(2**31)),
        (natural, "-1"),
        (counts, "8,"),
        (count, ""),
    ]:
        with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from"):
            convert(text)


def test_a_refusal_is_one_sentence() -> None:
    parser = Parser(prog="x")
    parser.add_argument("--k", type=count)
    with pytest.raises(UserError, match=r"^argument --k: 'no' is not a whole number from 1 on \(see --help\)\.$"):
        parser.parse_args(["--k", "no"])
