#!/usr/bin/env python
"""Checks the plugin on a GPU, and times modules, training and translation there, within some minutes.

    scripts/gpu_check.py --out results/gpu

First the tests that need a GPU run, then scripts/benchmark.py with WMT-sized models. What fails or takes too long is
said, and the rest goes on; what was measured until then is kept.
"""

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

from linformer_fairseq.cli.arguments import Parser, count
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.main import exit_status

ROOT = Path(__file__).resolve().parents[1]
TESTS = "-o addopts= -p no:cacheprovider -q -m gpu tests/modules/test_gpu.py tests/optim tests/commands/test_gpu.py"
FP16 = ["--fp16"]
MODES = ["--fp16", "--fp16 --optimizer adam", "--amp", "--amp --optimizer adam"]
MODULES = "--parts self-training cross-training causal-training --only full fairseq linear two-level"
SIZES = "--device cuda --vocabulary 32000 --repeats 3"
ARCHS = "full_transformer linformer_transformer two_level_transformer"
LAYERS = "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 16"
DRY_SIZES = (
    f"--vocabulary 20 --repeats 3 --k 4 --dim 16 --arch full_transformer two_level_transformer --flags '{LAYERS}'"
)
LEAST = 10  # seconds, in which nothing can be measured


class Part(NamedTuple):
    """What is run, and for at most how many seconds."""

    name: str
    seconds: int
    arguments: str  # of pytest for the tests, else of the benchmark
    lengths: Sequence[int] = ()
    tokens: int = 0
    modes: Sequence[str] = ()
    pads: bool = False


PARTS = [
    Part("tests", 110, TESTS),
    Part("modules", 70, MODULES, [512, 1024, 2048, 4096, 8192, 16384, 32768], 32768),
    Part("training", 90, "--parts training", [512, 1024, 2048, 4096, 8192, 16384], 16384, FP16),
    # fairseq's own attention would need more memory than there is
    Part("longest", 60, f"--parts training --arch {ARCHS}", [32768], 65536, FP16),
    Part("large-batches", 60, f"--parts training --arch {ARCHS}", [1024, 8192], 65536, FP16),
    Part("optimizers", 40, "--parts training --arch full_transformer", [1024], 16384, MODES),
    Part("padded", 40, "--parts training", [1024, 4096], 16384, FP16, pads=True),
    Part("translation", 50, "--parts translation", [2048, 8192], 65536),
]


def command(part: Part, folder: Path, dry: bool) -> list[str]:
    """Returns the command of a part; in a dry run it is a small one for a processor."""
    if not part.lengths:
        return [sys.executable, "-m", "pytest", *part.arguments.split()]
    lengths, tokens = ([16], 32) if dry else (part.lengths, part.tokens)
    # without a GPU fairseq's trainer has float32 alone
    modes = [mode.replace("--fp16", "").replace("--amp", "") for mode in part.modes] if dry else part.modes
    return [
        *(sys.executable, str(ROOT / "scripts/benchmark.py"), "--out", str(folder), *part.arguments.split()),
        *("--lengths", *map(str, lengths), "--tokens", str(tokens), *shlex.split(DRY_SIZES if dry else SIZES)),
        *([] if dry or part.modes else ["--dtype", "float16"]),
        *(f"--training={mode}" for mode in modes),
        *(["--shortest", str(lengths[0] // 2)] if part.pads else []),
    ]


def run(words: Sequence[str | Path], log: Path, seconds: float) -> str:
    """Runs a command for so long at most, with all that it starts, and says how it ended."""
    with open(log, "w", encoding="utf-8") as file:
        print(shlex.join(map(str, words)), file=file, flush=True)
        process = subprocess.Popen(words, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return f"stopped, as its time is up; see {log}"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return f"failed with status {status}; see {log}" if status else "done"


def main(argv: Sequence[str]) -> None:
    """Runs all parts, as far as the time allows."""
    add = (parser := Parser(description=__doc__)).add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder with a log, and a benchmark, of every part")
    add("--minutes", type=count, default=9, help="after which it ends")
    add("--dry", action="store_true", help="try the same on a processor, in tiny sizes")
    add("--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART", help="what to run (default: all)")
    args = parser.parse_args(argv)
    if not (args.dry or torch.cuda.is_available()):
        raise UserError("This needs a GPU that torch sees: add --dry to try it on a processor, in tiny sizes.")
    end, failed = time.monotonic() + 60 * args.minutes, []
    (out := args.out.resolve()).mkdir(parents=True, exist_ok=True)
    for part in [part for part in PARTS if part.name in (args.only or part.name)]:
        begun, log = time.monotonic(), out / f"{part.name}.txt"
        if (left := min(part.seconds, end - begun)) < LEAST:
            said = "left out, as the time is up"
        else:
            said = run(command(part, out / part.name, args.dry), log, left)
        failed += [part.name] * (said != "done")
        print(f"{part.name}: {said} ({time.monotonic() - begun:.0f} s)", flush=True)
    if failed:
        raise UserError(f"{', '.join(failed)} did not end well: see the logs in {args.out}.")


if __name__ == "__main__":
    sys.exit(exit_status(lambda: main(sys.argv[1:]), "the folder has what was measured so far."))
