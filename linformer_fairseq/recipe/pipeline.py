"""The order of the steps."""

import os
from functools import partial
from pathlib import Path

from linformer_fairseq.checkpoints import check_torch
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.processes import run_in_parallel
from linformer_fairseq.cli.progress import say

from .arguments import Run
from .evaluate import evaluate
from .flags import check_flags
from .launch import Machines, machines_from, update_freq
from .length_timing import measure_lengths
from .precision import precision_arguments
from .prepare import check_lengths, prepare, prepared
from .report import write_report
from .report_text import summary
from .rows import finished_models
from .settings import store_settings
from .steps import locked
from .train import train, trained


def run(run: Run) -> None:
    """Takes every step that is not done yet."""
    training = run.settings.training
    for model in run.models:
        check_flags(model, run.settings, run.out)
    if run.step in ("evaluate", "compare") and run.settings.translation.average:
        check_torch("Averaging")
    machines = None
    if run.step in ("train", "compare"):
        if not all(trained(model, run.out) for model in run.models):
            precision_arguments(training.precision, training.on_cpu)  # refuses what cannot be had here
        machines = machines_from(os.environ, run.processes, training.update_batches, training.on_cpu)
        update_freq(training.update_batches, machines.world_size)  # refuses what cannot be shared
        if machines.nodes > 1:
            train_on_several(run, machines)
            return
    make_writable(run.out)
    prepares = run.step in ("prepare", "compare")
    with locked(run.out) as lock:
        store_settings(run.settings, run.out, prepares)
        if prepares:
            prepare(run.settings.text, run.out, run.threads, lock)
            say(f"The binarised text is in {run.out / 'bin'}.")
    if machines:
        train_all(run, machines)
    if run.step in ("evaluate", "compare"):
        evaluate_all(run)
    if run.step == "compare":
        with locked(run.out):
            write_report(run.settings, run.out)  # first, as long sentences may need more memory than there is
            models = finished_models(run.out)
            if run.lengths and measure_lengths(run.lengths, models, run.settings, run.out, run.threads):
                write_report(run.settings, run.out)
        say(f"The report is in {run.out / 'report.html'}, and as text in {run.out / 'report.md'}.")


def train_on_several(run: Run, machines: Machines) -> None:
    """Does this machine's part of a training on several; the first one alone keeps the settings and the checkpoints."""
    if run.step != "train" or run.jobs > 1:
        raise UserError(
            f"NNODES is {machines.nodes}, and several machines train one model at a time and nothing else: use "
            "train.sh there without --jobs, and unset NNODES for the rest."
        )
    check_text(run)
    if not machines.node_rank:
        with locked(run.out):
            store_settings(run.settings, run.out, prepares=False)
    for model in run.models:
        train(model, run.settings, run.out, machines, run.threads, jobs=1)


def train_all(run: Run, machines: Machines) -> None:
    """Trains every model, `run.jobs` at a time; the first failure, or an interrupt, ends the others."""
    check_text(run)
    waiting = [model for model in run.models if not trained(model, run.out)]
    jobs = max(1, min(run.jobs, len(waiting)))
    train_one = partial(train, settings=run.settings, out=run.out, machines=machines, threads=run.threads, jobs=jobs)
    run_in_parallel([partial(train_one, model) for model in run.models], jobs)


def check_text(run: Run) -> None:
    """Refuses to train on text that is not there or that the models cannot take."""
    if not prepared(run.out):
        raise UserError(f"{run.out / 'bin'} is missing: prepare the text first, on one machine (prepare.sh).")
    check_lengths(run.settings, run.out)


def evaluate_all(run: Run) -> None:
    """Translates with every model, one at a time and never beside a training of this run, so that times compare."""
    for model in run.models:
        if not trained(model, run.out):
            raise UserError(f"{model.name} has not been trained to its end in {run.out}: train it first (train.sh).")
    for model in run.models:
        evaluate(model, run.settings, run.out, run.threads)
        say(summary(model, run.out))


def make_writable(out: Path) -> None:
    """Makes the output folder, or refuses one that cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink(missing_ok=True)  # another command may have been faster
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}): name another folder with --out.") from None
