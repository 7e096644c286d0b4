"""What the studies' scripts run, started as a user does: from a folder that is not the project's."""

import os
import socket
import subprocess
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def free_port() -> int:
    """Returns a port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def study_arguments(script: str, out: Path, *arguments: str, program: str) -> list[str]:
    """Returns what `examples/SCRIPT.sh` would give a program, as a stand-in for the Python of the environment that PATH
    names tells it."""
    stand_in = out.parent / "stand-in"
    stand_in.mkdir(exist_ok=True)
    for name in ("fairseq-train", "python"):
        (stand_in / name).write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
        (stand_in / name).chmod(0o755)
    done = subprocess.run(
        [EXAMPLES / f"{script}.sh", *arguments],
        cwd=out.parent,
        env={**os.environ, "PATH": f"{stand_in}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    _, module, *given = done.stdout.splitlines()
    assert module == program
    return given
