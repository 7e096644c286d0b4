"""Runs other commands, with their output in a log file; none of them outlives the process that started it."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

import torch

from .errors import CommandError

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_running: set[subprocess.Popen[str]] = set()
# where torch's safe loader can read fairseq's checkpoints, the started commands use no other
_SAFE_LOADER = (
    {"TORCH_FORCE_WEIGHTS_ONLY_LOAD": "1", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "0"}
    if hasattr(torch.serialization, "add_safe_globals")
    else {}
)

# glibc would give the memory of every large tensor back to the system, which fills it with zeros for the next one
_KEEPING_MEMORY = {f"MALLOC_{name}_": str(1 << 30) for name in ("MMAP_THRESHOLD", "TRIM_THRESHOLD")}


def run_command(
    command: Sequence[str],
    name: str,
    log: Path,
    threads: int,
    lock: int | None = None,
    on_line: Callable[[str], None] | None = None,
    what: str = "",
) -> None:
    """Runs a command with this many threads, appends its output to `log` and passes each line of it to `on_line`.

    Args:
        name: what an error calls the command.
        lock: a file descriptor that the command keeps open while it runs.
        what: what the command works on, for the error.

    Raises:
        CommandError: the exit status is not 0.
    """
    environment = {
        **_KEEPING_MEMORY,
        "OMP_WAIT_POLICY": "PASSIVE",  # threads that spin for each other starve where cores are shared
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(threads)),
        "PYTHONUNBUFFERED": "1",
        "PYTHONIOENCODING": "utf-8",
        "PYTHONWARNINGS": "ignore",
        **_SAFE_LOADER,
    }
    with (
        open(log, "a", encoding="utf-8") as file,
        subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            encoding="utf-8",
            errors="replace",
            pass_fds=() if lock is None else (lock,),
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
        raise CommandError(
            f"{name} failed{f' for {what}' if what else ''} (exit status {process.returncode}): "
            f"its last lines are in {log}; put right what they name and run the same command again."
        )


def run_in_parallel(tasks: Sequence[Callable[[], None]], jobs: int) -> None:
    """Runs tasks that wait for commands, `jobs` at a time; the first failure, or an interrupt, ends the others."""
    if jobs == 1:
        for task in tasks:
            task()
        return
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(task) for task in tasks]
        try:
            for future in wait(futures, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in futures):  # one may be about to start
                for process in tuple(_running):
                    process.kill()
                time.sleep(0.1)
            raise


def die_with_parent(parent: int | None = None) -> None:
    """Asks Linux to kill this process when the thread that started it ends; on other systems nothing happens.

    A killed command would otherwise leave a training behind, whose files a second one would write too.

    Args:
        parent: the process that started this one, if it is known: if it has ended already, this one ends here.
    """
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
