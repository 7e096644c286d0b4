"""The order of the steps."""

import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.progress import say

from .arguments import Run
from .evaluate import evaluate
from .fairseq_command import kill_running
from .flags import check_flags
from .prepare import prepare
from .report import write_report
from .settings import keep
from .steps import locked
from .train import train, trained


def run(run: Run) -> None:
    """Do what is not done yet, and write the report on all that is."""
    for model in run.models:
        check_flags(model, run.settings, run.out)
    make_writable(run.out)
    with locked(run.out) as lock:
        keep(run.settings, run.out)
        prepare(run.settings, run.out, lock)
        train_all(run, lock)
        for model in run.models:  # one at a time and never beside a training, so that times compare
            evaluate(model, run.settings, run.out, lock)
        write_report(run.settings, run.out)
    say(f"The report is in {run.out / 'report.md'}.")


def train_all(run: Run, lock: int) -> None:
    """Train every model, `run.jobs` at a time; the first failure, or an interrupt, ends the others."""
    waiting = [model for model in run.models if not trained(model, run.out)]
    jobs = max(1, min(run.jobs, len(waiting)))
    if jobs == 1:
        for model in run.models:
            train(model, run.settings, run.out, jobs, lock)
        return
    with ThreadPoolExecutor(jobs) as pool:
        trainings = [pool.submit(train, model, run.settings, run.out, jobs, lock) for model in run.models]
        try:
            for training in wait(trainings, return_when=FIRST_EXCEPTION).done:
                training.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            while not all(training.done() for training in trainings):  # one may be about to start
                kill_running()
                time.sleep(0.1)
            raise


def make_writable(out: Path) -> None:
    """Make the output folder, or refuse one that cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UserError(f"{out} cannot be written ({error.strerror}): name another folder with --out.") from None
