"""`python -m linformer_fairseq.recipe`: from raw text to a report on Transformer and Linformer."""

import sys
from functools import partial

from linformer_fairseq.cli.main import run_tool

main = partial(run_tool, "linformer_fairseq.recipe.pipeline", interrupted="the same command goes on from here")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
