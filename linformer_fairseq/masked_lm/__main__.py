"""`python -m linformer_fairseq.masked_lm --data DIR --out OUT`: masked language models with every kind of attention."""

import sys
from functools import partial

from linformer_fairseq.cli.main import run_tool

main = partial(
    run_tool, "linformer_fairseq.masked_lm.run", interrupted="the same command goes on where this one stopped"
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
