"""Running fairseq-train to its end, from wherever an earlier attempt stopped."""

import shutil
import sys
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from linformer_fairseq.cli.files import replacing, write_json
from linformer_fairseq.cli.machine import cpu_count, describe_machine
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.cli.progress import say

from . import logs
from .steps import locked

WORKER = "linformer_fairseq.recipe.worker"
DONE = "train.json"
"""In the folder of a model that has been trained to its end."""
LOG = "train.log"
CHECKPOINTS = "checkpoints"


@dataclass(frozen=True)
class Course:
    """How long a training is, and where and in which precision it runs."""

    epochs: int
    """0: until `updates` are done."""
    updates: int
    """0: until `epochs` are done."""
    precision: str
    on_cpu: bool


def run_training(name: str, folder: Path, arguments: Sequence[str], course: Course, threads: int, jobs: int) -> None:
    """Trains a model to its end; `train.json` in its folder says that this has been done.

    Args:
        name: of the model, for the user.
        folder: of the model; fairseq-train is told to save in `CHECKPOINTS` in it.
        arguments: those of fairseq-train.
        threads: those of a training that has the machine for itself.
        jobs: trainings at a time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder) as lock:
        if (folder / DONE).exists():
            say(f"Training {name}: already done")
            return
        again = repair_checkpoints(folder / CHECKPOINTS)
        place = f"on {'the CPU' if course.on_cpu else 'a GPU'}, in {course.precision}"
        say(f"Training {name} {place}{', from where it stopped' if again else ''} ...")
        command = [sys.executable, "-m", WORKER, "--precision", course.precision, "--", *arguments]
        each = threads_each(threads, jobs)
        run_command(command, "fairseq-train", folder / LOG, each, lock, _Progress(name, course), name)
        facts = {
            "jobs": jobs,
            "precision": course.precision,
            "threads": each,
            "machine": describe_machine(),
            "command": command,
        }
        write_json(folder / DONE, facts)


def threads_each(threads: int, jobs: int) -> int:
    """Returns the threads of a training; several trainings at a time share the cores, as more threads than those would
    wait for each other.

    Args:
        threads: those of a training that has the machine for itself.
        jobs: trainings at a time.
    """
    return threads if jobs == 1 else max(1, min(threads, cpu_count() // jobs))


class _Progress:
    """Says how far a training has come, and how long it will still take at the pace so far."""

    def __init__(self, name: str, course: Course) -> None:
        self._name = name
        self._course = course
        self._start: tuple[float, float] | None = None

    def __call__(self, line: str) -> None:
        kind, values = logs.entry(line)
        if kind == "train_inner":
            done = self._done(values)
            say(
                f"  {self._name}: {done:4.0%}{self._left(done)}, epoch {values['epoch']:.0f}, update "
                f"{values['num_updates']:.0f}, loss {values['loss']:.2f}, {values['wps']:,.0f} tokens/s"
            )
        elif kind == "valid":
            quality = f"accuracy {values['valid_accuracy']:.2f} %" if "valid_accuracy" in values else ""
            quality = f"perplexity {values['valid_ppl']:.2f}" if "valid_ppl" in values else quality
            say(f"  {self._name}: validation {quality} after {values['valid_num_updates']:.0f} updates")

    def _done(self, values: dict[str, float]) -> float:
        """Returns the fraction that is done, by whichever limit comes first."""
        epochs, updates = self._course.epochs, self._course.updates
        return max(
            values["update"] / epochs if epochs else 0.0,  # fairseq's `update` is a fraction of an epoch
            values["num_updates"] / updates if updates else 0.0,
        )

    def _left(self, done: float) -> str:
        now = time.monotonic()
        since, before = self._start = self._start or (now, done)
        if done <= before:
            return ""
        return f", {tqdm.format_interval((now - since) * max(0.0, 1 - done) / (done - before))} left"


def repair_checkpoints(folder: Path) -> bool:
    """Replaces checkpoints that a kill left half copied, and returns whether there is one to go on from.

    fairseq writes a checkpoint whole under one name, then copies it to its other names (best, last) in place:
    a broken one is always a copy of the newest whole one.
    """
    for part in (*folder.glob("*.tmp"), *folder.glob("*.part")):
        part.unlink()
    checkpoints = sorted(folder.glob("checkpoint*.pt"), key=lambda path: path.stat().st_mtime_ns)
    whole = [path for path in checkpoints if zipfile.is_zipfile(path)]
    for path in set(checkpoints) - set(whole):
        if whole:
            with replacing(path) as part:
                shutil.copyfile(whole[-1], part)
        else:
            path.unlink()
    return (folder / "checkpoint_last.pt").exists()
