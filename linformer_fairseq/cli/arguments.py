"""Arguments of a command, refused in one sentence."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from .errors import UserError

Number = TypeVar("Number", int, float)


class _Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help that says the default of every option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        return action.help if action.default is None else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """A parser whose refusals are one sentence, without the usage text before it, as are those of its subcommands."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(formatter_class=_Help, allow_abbrev=False, **keywords)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message} (see --help).")


def check_folder(flag: str, path: Path) -> None:
    """Refuses a file where a folder for results is asked for."""
    if path.exists() and not path.is_dir():
        raise UserError(f"{flag} {path} is a file: name a folder.")


def check_device(device: str) -> None:
    """Refuses a GPU that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda needs a GPU that torch sees: use --device cpu.")


def number(kind: Callable[[str], Number], low: float, high: float, wanted: str) -> Callable[[str], Number]:
    """A converter that accepts low <= value <= high and says what it wants otherwise."""

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
    """Digits alone; `int` would take "1_0" and "+9" too."""
    return int(text) if text.isdecimal() else -1


count = number(_whole, 1, 2**31 - 1, "a whole number from 1 on")
natural = number(_whole, 0, 2**31 - 1, "a whole number from 0 on")


def counts(text: str) -> list[int]:
    """A comma list of whole numbers from 1 on."""
    return [count(part.strip()) for part in text.split(",")]


def ascending(text: str) -> tuple[int, ...]:
    """A comma list of whole numbers from 1 on, in ascending order and each once."""
    return tuple(sorted(set(counts(text))))
