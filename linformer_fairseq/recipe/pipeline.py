"""The order of the steps."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .arguments import Run
from .errors import RecipeError
from .evaluate import evaluate
from .flags import check_flags
from .prepare import prepare
from .report import write_report
from .settings import keep
from .steps import locked, say
from .train import train


def run(run: Run) -> None:
    """Do what is not done yet, and write the report on all that is."""
    for model in run.models:
        check_flags(model, run.settings, run.out)
    make_writable(run.out)
    with locked(run.out) as lock:
        keep(run.settings, run.out)
        prepare(run.settings, run.out, lock)
        with ThreadPoolExecutor(run.jobs) as pool:
            trainings = [pool.submit(train, model, run.settings, run.out, run.jobs, lock) for model in run.models]
            try:
                for training in trainings:
                    training.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        for model in run.models:  # one at a time and never beside a training, so that times compare
            evaluate(model, run.settings, run.out, lock)
        write_report(run.settings, run.out)
    say(f"The report is in {run.out / 'report.md'}.")


def make_writable(out: Path) -> None:
    """Make the output folder, or refuse one that cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        probe = out / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise RecipeError(f"{out} cannot be written ({error.strerror}): name another folder with --out.") from None
