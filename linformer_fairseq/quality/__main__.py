"""`python -m linformer_fairseq.quality`: what projecting attention costs in translation quality, over several seeds."""

import sys
from functools import partial

from linformer_fairseq.cli.main import run_tool

main = partial(run_tool, "linformer_fairseq.quality.run", interrupted="the same command goes on from here")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
