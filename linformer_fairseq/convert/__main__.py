"""`python -m linformer_fairseq.convert CHECKPOINT OUT`: a trained `transformer` with another kind of attention."""

import sys
from collections.abc import Sequence

from linformer_fairseq.cli.main import exit_status, quiet_libraries


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    quiet_libraries()

    def command() -> None:
        from .arguments import parse
        from .run import run

        run(parse(argv))

    return exit_status(command, interrupted="no checkpoint was written")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
