"""`python -m linformer_fairseq.classification --pretrained DIR --data DIR --out OUT`: pretrained encoders classify."""

import sys
from functools import partial

from linformer_fairseq.cli.main import run_tool

main = partial(
    run_tool, "linformer_fairseq.classification.run", interrupted="the same command goes on where this one stopped"
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
