"""`python -m linformer_fairseq.recipe`: from raw text to a report on Transformer and Linformer."""

import logging
import sys
from collections.abc import Sequence

from .errors import RecipeError


def main(argv: Sequence[str]) -> int:
    """Returns the exit status: 0, 2 for what the user can put right, 130 when interrupted."""
    # Importing fairseq turns on debug messages for everything; libraries imported from here on say only warnings.
    logging.getLogger().setLevel(logging.WARNING)
    from .arguments import parse
    from .pipeline import run

    try:
        run(parse(argv))
    except RecipeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:  # a full disk, a folder that vanished
        print(f"error: {error.filename or 'the output folder'}: {error.strerror}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
