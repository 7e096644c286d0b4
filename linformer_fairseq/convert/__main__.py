"""`python -m linformer_fairseq.convert CHECKPOINT OUT`: a trained Transformer with another kind of attention."""

import sys
from collections.abc import Sequence

from linformer_fairseq.cli.main import exit_status

from .arguments import parse
from .run import run


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    return exit_status(lambda: run(parse(argv)), interrupted="no checkpoint was written")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
