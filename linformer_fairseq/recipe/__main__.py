"""`python -m linformer_fairseq.recipe`: from raw text to a report on Transformer and Linformer."""

import sys
from collections.abc import Sequence

from linformer_fairseq.cli.main import exit_status, quiet_libraries


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    quiet_libraries()

    def command() -> None:
        from .arguments import parse
        from .pipeline import run

        run(parse(argv))

    return exit_status(command, interrupted="the same command goes on from here")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
