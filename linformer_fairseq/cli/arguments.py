"""Parses arguments, and refuses them in one sentence."""

import argparse
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from .errors import UserError

Number = TypeVar("Number", int, float)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """A formatter that gives the default of every option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A parser that, like its subcommands, raises a UserError of one sentence instead of printing its usage."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help).")


def number(kind: Callable[[str], Number], low: float, high: float, wanted: str) -> Callable[[str], Number]:
    """Returns a converter for argparse that accepts low <= value <= high and otherwise says what is wanted."""

    def convert(text: str) -> Number:
        try:
            value = kind(text)
        except ValueError:
            value = kind("-1")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is not {wanted}")
        return value

    return convert


def _whole(text: str) -> int:
    """Returns the number of a text of digits, or -1; `int` would accept "1_0" and "+9" too."""
    return int(text) if text.isdecimal() else -1


count = number(_whole, 1, 2**31 - 1, "a whole number from 1 on")
natural = number(_whole, 0, 2**31 - 1, "a whole number from 0 on")


def ascending(text: str) -> tuple[int, ...]:
    """Returns the numbers of a comma list of whole numbers from 1 on, each once, in ascending order."""
    return tuple(sorted({count(part.strip()) for part in text.split(",")}))
