"""Training one model, from wherever an earlier attempt stopped."""

import shutil
import time
import zipfile
from pathlib import Path

import torch
from tqdm import tqdm

from linformer_fairseq.cli.files import replacing, write_json
from linformer_fairseq.cli.machine import cpu_count, describe_machine
from linformer_fairseq.cli.processes import run_command
from linformer_fairseq.cli.progress import say

from . import logs
from .launch import Machines, train_command, update_freq
from .settings import DONE, Model, Settings, Training
from .steps import locked

LOG = "train.log"
DOCUMENT_TASK = "document_translation"
LOG_INTERVAL = 50


def training_arguments(model: Model, settings: Settings, out: Path, folder: Path, freq: int) -> list[str]:
    """Returns the arguments of fairseq-train: the same for every model but for the architecture and the folder."""
    text, training = settings.text, settings.training
    every = str(training.validate_updates)
    return [
        str(out / "bin"),
        *("--task", DOCUMENT_TASK if text.dataset.has_documents else "translation"),
        *("--source-lang", text.source_lang, "--target-lang", text.target_lang),
        *model.arguments(training),
        *("--share-all-embeddings", "--dropout", str(training.dropout)),
        *("--criterion", "label_smoothed_cross_entropy", "--label-smoothing", str(training.label_smoothing)),
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)"),
        *("--lr", str(training.lr), *_schedule(training)),
        *("--warmup-updates", str(training.warmup_updates)),
        *("--max-tokens", str(training.max_tokens), "--update-freq", str(freq)),
        *("--required-batch-size-multiple", "1", "--num-workers", "0"),
        *("--max-epoch", str(training.epochs), "--max-update", str(training.updates), "--seed", str(training.seed)),
        *("--validate-interval-updates", every, "--save-interval-updates", every),
        *("--keep-interval-updates", str(training.keep_checkpoints), "--no-epoch-checkpoints"),
        *("--save-dir", str(folder / "checkpoints")),
        *("--log-format", "json", "--log-interval", str(LOG_INTERVAL)),
        *(["--cpu"] if training.on_cpu and "--cpu" not in training.train_args else []),
        *training.train_args,
    ]


def _schedule(training: Training) -> list[str]:
    """Returns the flags of what the learning rate does after its warm-up."""
    if training.linear_decay:
        return ["--lr-scheduler", "polynomial_decay", "--total-num-update", str(training.updates)]
    return ["--lr-scheduler", "inverse_sqrt"]


def trained(model: Model, out: Path) -> bool:
    """Returns whether a model has been trained to its end."""
    return (out / "models" / model.slug / DONE).exists()


def train(model: Model, settings: Settings, out: Path, machines: Machines, threads: int, jobs: int) -> None:
    """Trains a model to its end; `train.json` in its folder says that this has been done.

    Machines other than the first one keep nothing but a log, in a folder of their own.
    """
    folder = out / "models" / model.slug
    own = out / "machines" / str(machines.node_rank) / model.slug if machines.node_rank else folder
    own.mkdir(parents=True, exist_ok=True)
    with locked(own) as lock:
        if trained(model, out):
            say(f"Training {model.name}: already done")
            return
        again = not machines.node_rank and repair_checkpoints(folder / "checkpoints")
        place = describe_place(machines, settings.training)
        say(f"Training {model.name} {place}{', from where it stopped' if again else ''} ...")
        freq = update_freq(settings.training.update_batches, machines.world_size)
        precision = settings.training.precision
        command = train_command(machines, precision, training_arguments(model, settings, out, folder, freq))
        progress = _Progress(model, settings.training)
        each = threads_each(threads, jobs, machines.processes)
        run_command(command, "fairseq-train", own / LOG, each, lock, progress, model.name)
        if not machines.node_rank:
            facts = {
                "k": model.k,
                "attention": model.attention,
                "projection": model.projection,
                "jobs": jobs,
                "processes": machines.world_size,
                "precision": precision,
                "threads": each,
                "machine": describe_machine(),
                "command": command,
            }
            write_json(folder / DONE, facts)


def threads_each(threads: int, jobs: int, processes: int) -> int:
    """Returns the threads of each process of a training; several trainings at a time share the cores, as more threads
    than those would wait for each other.

    Args:
        threads: those of a training that has the machine for itself.
        jobs: trainings at a time.
        processes: those of the training.
    """
    share = threads if jobs == 1 else min(threads, cpu_count() // jobs)
    return max(1, share // processes)


def describe_place(machines: Machines, training: Training) -> str:
    """Says in a few words on which processors and in which precision a training runs, for the terminal."""
    if training.on_cpu:
        place = f"on the CPU in {machines.processes} process{'es' * (machines.processes > 1)}"
    else:
        place = f"on {machines.processes} of {torch.cuda.device_count()} GPUs"
    return f"{place}{f' of each of {machines.nodes} machines' if machines.nodes > 1 else ''}, in {training.precision}"


class _Progress:
    """Says how far a training has come, and how long it will still take at the pace so far."""

    def __init__(self, model: Model, training: Training) -> None:
        self._name = model.name
        self._training = training
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
            update, perplexity = values["valid_num_updates"], values["valid_ppl"]
            say(f"  {self._name}: validation perplexity {perplexity:.2f} after {update:.0f} updates")

    def _done(self, values: dict[str, float]) -> float:
        """Returns the fraction that is done, by whichever limit comes first."""
        epochs, updates = self._training.epochs, self._training.updates
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
