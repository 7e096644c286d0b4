"""Running the recipes' scripts as a user does: from a folder that is not the project's."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
MACHINES = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1"}
"""What tells a script that it is one of several machines."""


def start(script: str, out: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Starts `examples/SCRIPT.sh`; `out` is where it is to leave its results."""
    environment = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", *MACHINES)}
    return subprocess.Popen(
        [EXAMPLES / f"{script}.sh", *arguments],
        cwd=out.parent,
        env={**environment, "LINFORMER_VENV": sys.prefix, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        preexec_fn=heed_interrupts,
    )


def heed_interrupts() -> None:
    """As at a terminal: tests that a shell runs in the background inherit that interrupts are ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def finish(script: str, out: Path, *arguments: str, **variables: str) -> str:
    """Runs a script to its end and returns what it said."""
    process = start(script, out, *arguments, **variables)
    said, _ = process.communicate()
    assert process.returncode == 0, said[-3000:]
    return said


def recipe_arguments(
    script: str, out: Path, *arguments: str, program: str = "linformer_fairseq.recipe", **variables: str
) -> list[str]:
    """Returns what a script would give the recipe, or another program, as a stand-in for the virtual environment's
    Python tells it."""
    stand_in = out.parent / "stand-in"
    (stand_in / "bin").mkdir(parents=True, exist_ok=True)
    (stand_in / "bin" / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (stand_in / "bin" / "python").chmod(0o755)
    said = finish(script, out, *arguments, **{**variables, "LINFORMER_VENV": str(stand_in)})
    _, module, *given = said.splitlines()
    assert module == program
    return given
