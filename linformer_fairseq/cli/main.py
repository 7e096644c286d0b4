"""Starts and ends commands."""

import logging
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module

from .errors import UserError

RECIPE_MODULES = frozenset({"doit", "matplotlib", "sacremoses", "sklearn", "tabulate", "yaml"})
"""The modules that the extra `recipes` installs."""


def quiet_libraries() -> None:
    """Limits the root logger, which fairseq has set to INFO, to warnings, and hides one on a name that fairseq uses."""
    logging.getLogger().setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", r"`torch\.cuda\.amp\.autocast", FutureWarning)


def run_tool(module: str, argv: Sequence[str], interrupted: str) -> int:
    """Runs a tool with a command line and returns its exit status, as `exit_status` does.

    The command line goes to `parse` of the module `arguments` beside `module`, and its result to `run` of `module`,
    which is imported after it: a refusal and `--help` need none of the libraries that the tool works with.
    """

    def command() -> None:
        arguments = import_module(".arguments", module.rpartition(".")[0]).parse(argv)
        import_module(module).run(arguments)

    return exit_status(command, interrupted)


def exit_status(command: Callable[[], None], interrupted: str) -> int:
    """Runs a command and returns its exit status, having said in one sentence what went wrong.

    The status is 0 after success, 1 after a failed write, 2 after an error that the user can put right and 130 after
    an interruption. A missing module that the extra `recipes` installs is such an error.

    Args:
        interrupted: what an interruption means, for the user.
    """
    quiet_libraries()
    try:
        command()
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        if library not in RECIPE_MODULES:
            raise
        print(f"error: {library} is not installed: run pip install 'linformer_fairseq[recipes]'.", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that vanished
        print(f"error: {error.filename or 'the output folder'}: {error.strerror}.", file=sys.stderr)
        return 1
    except MemoryError:
        print("error: The memory is full: give the command more of it, or less to do at a time.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"interrupted: {interrupted}", file=sys.stderr)
        return 130
    return 0
