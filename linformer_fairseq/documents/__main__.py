"""`python -m linformer_fairseq.documents`: documents and each kind of attention, from raw text to a report."""

import sys
from functools import partial

from linformer_fairseq.cli.main import run_tool

main = partial(run_tool, "linformer_fairseq.documents.run", interrupted="the same command goes on from here")

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
