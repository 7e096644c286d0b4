"""`python -m linformer_fairseq.benchmark`: what Linformer attention costs, against full attention."""

import logging
import os
import sys
from collections.abc import Sequence

from .errors import BenchmarkError


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: 0, 1 for a failed write, 2 for what the user can put right, 130 when interrupted."""
    # Importing fairseq turns on debug messages for everything; torch's profiler tells of its own starts and ends.
    logging.getLogger().setLevel(logging.WARNING)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    from .arguments import parse

    try:
        arguments = parse(argv)
        arguments.run(arguments.running, arguments.settings)
    except BenchmarkError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that vanished
        print(f"error: {error.filename or 'the output folder'}: {error.strerror}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
