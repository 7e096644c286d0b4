"""`python -m linformer_fairseq.convert CHECKPOINT OUT`: a trained Transformer with another kind of attention."""

import sys
from functools import partial

from linformer_fairseq.cli.main import run_tool

main = partial(run_tool, "linformer_fairseq.convert.run", interrupted="no checkpoint was written")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
