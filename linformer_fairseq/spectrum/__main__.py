"""`python -m linformer_fairseq.spectrum CHECKPOINT DATA`: how low the rank of a trained model's attention is."""

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

    return exit_status(command, interrupted="nothing was written")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
