"""`python -m linformer_fairseq.benchmark`: what Linformer attention costs, against full attention."""

import os
import sys
from collections.abc import Sequence

from linformer_fairseq.cli.main import exit_status


def main(argv: Sequence[str]) -> int:
    """Runs the command and returns its exit status."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # torch's profiler announces its own starts and ends

    def command() -> None:
        from .arguments import parse
        from .memory import limited_memory

        arguments = parse(argv)
        with limited_memory(arguments.options.torch_device):
            arguments.run(arguments.options, arguments.settings)

    return exit_status(command, interrupted="run the same command again")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
