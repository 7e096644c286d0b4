"""Running fairseq's commands: output to a log file, progress to the terminal, failures in one sentence."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import linformer_fairseq
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.processes import die_with_parent

PLUGIN = str(Path(linformer_fairseq.__file__).parent)
_running: set[subprocess.Popen[str]] = set()


def command_line(command: str, arguments: list[str]) -> list[str]:
    """The full command; the plugin is always named, as it also lets torch load fairseq's checkpoints."""
    user_dir = [] if command == "preprocess" else ["--user-dir", PLUGIN]
    return [sys.executable, "-m", f"fairseq_cli.{command}", *arguments, *user_dir]


def run_fairseq(
    command: str,
    arguments: list[str],
    log: Path,
    threads: int,
    lock: int,
    on_line: Callable[[str], None] | None = None,
    what: str = "",
) -> None:
    """Run one command to its end, appending all it says to `log` and handing each line to `on_line`."""
    count = str(threads)
    environment = {
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin for each other starve where cores are shared
        **os.environ,
        **{name: count for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")},
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONWARNINGS": "ignore",
    }
    with (
        open(log, "a", encoding="utf-8") as file,
        subprocess.Popen(
            command_line(command, arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            encoding="utf-8",
            errors="replace",
            pass_fds=(lock,),
            preexec_fn=die_with_parent,
        ) as process,
    ):
        assert process.stdout is not None
        _running.add(process)
        try:
            for line in process.stdout:
                file.write(line)
                file.flush()
                if on_line:
                    on_line(line)
        except BaseException:
            process.kill()
            raise
        finally:
            _running.discard(process)
    if process.returncode:
        raise UserError(
            f"fairseq-{command} failed{f' for {what}' if what else ''} (exit status {process.returncode}): "
            f"its last lines are in {log}; put right what they name and run the same command again."
        )


def kill_running() -> None:
    """End the commands that other threads run."""
    for process in tuple(_running):
        process.kill()
