"""`python -m linformer_fairseq.spectrum CHECKPOINT DATA`: how low the rank of a trained model's attention is."""

import sys
from functools import partial

from linformer_fairseq.cli.main import run_tool

main = partial(run_tool, "linformer_fairseq.spectrum.run", interrupted="nothing was written")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
