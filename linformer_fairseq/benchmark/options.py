"""Options of a command line as the fields of dataclasses."""

import argparse
import dataclasses
from typing import Any


def option(default: Any, help: str, group: str | None = None, **keywords: Any) -> Any:
    """Returns the field of a dataclass that is an option of the command line under the same name.

    Args:
        default: its value, or its text, which `type` then converts.
        group: the heading in --help for the option and those after it; None for the heading of those before it.
        keywords: further ones of argparse's `add_argument`, such as `type`.
    """
    value = keywords["type"](default) if isinstance(default, str) and "type" in keywords else default
    arguments = {"default": default, "help": help, **keywords}
    return dataclasses.field(default=value, metadata={"group": group, "arguments": arguments})


def add_options(parser: argparse.ArgumentParser, kind: type) -> None:
    """Adds an option for every field of a dataclass that `option` made."""
    target: Any = parser
    for field in dataclasses.fields(kind):
        if field.metadata:
            if field.metadata["group"]:
                target = parser.add_argument_group(field.metadata["group"])
            target.add_argument(f"--{field.name.replace('_', '-')}", **field.metadata["arguments"])


def fields_of(kind: type, values: dict[str, Any]) -> dict[str, Any]:
    """Returns the values that a dataclass has fields for."""
    return {field.name: values[field.name] for field in dataclasses.fields(kind) if field.name in values}
