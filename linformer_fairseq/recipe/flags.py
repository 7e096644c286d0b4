"""Asking fairseq's own parser about a training before it starts."""

import contextlib
import io
from argparse import Namespace
from collections.abc import Iterator, Sequence
from typing import Any

from fairseq import options

from linformer_fairseq.cli.errors import UserError

from .worker import check_arguments

OVERRIDABLE = {"--num-workers", "--log-interval"}
"""Flags that a study sets and the user may set otherwise, as no result depends on them."""


def check_unchanged(args: Namespace, own: Sequence[str], given: Sequence[str], where: str) -> None:
    """Refuses flags of the user's that undo what a study relies on.

    Args:
        args: what fairseq's parser makes of all arguments.
        own: the arguments without those that the user has given in `where`.

    Raises:
        UserError, ValueError: naming the flag.
    """
    names = {argument for argument in own if argument.startswith("--")} - OVERRIDABLE - {"--cpu"}
    unchanged = parse_training(list(own))
    for name in sorted(names | {"--no-save", "--fp16", "--amp", "--bf16"}):
        if _value(args, name) != _value(unchanged, name):
            raise ValueError(f"{name} is set by the study, so leave it out of {where}")
    check_arguments(given)


def _value(args: Namespace, flag: str) -> Any:
    return getattr(args, flag[2:].replace("-", "_"), None)


def parse_training(arguments: list[str]) -> Namespace:
    """Returns what fairseq's own parser makes of the arguments of fairseq-train."""
    return options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)


@contextlib.contextmanager
def refusing(name: str) -> Iterator[None]:
    """Turns what fairseq or the attention refuses within into one sentence for the user of the model `name`.

    Raises:
        UserError: something was refused.
    """
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except (SystemExit, ValueError, UserError) as error:
        lines = said.getvalue().strip().split("\n")
        reason = lines[-1] if lines[-1] else str(error)
        raise UserError(f"{name} cannot be trained: {reason.rpartition('error: ')[2].rstrip('.')}.") from None
