"""The order of the study: one text, the trainings, another attention in trained models, spectra, costs, the report."""

import sys
from functools import partial

from linformer_fairseq.checkpoints import check_torch
from linformer_fairseq.cli.files import write_json
from linformer_fairseq.cli.processes import run_command, run_in_parallel
from linformer_fairseq.cli.progress import say
from linformer_fairseq.recipe.course import run_training
from linformer_fairseq.recipe.merging import RESULTS
from linformer_fairseq.recipe.precision import precision_arguments
from linformer_fairseq.recipe.steps import locked, made_of, make_writable
from linformer_fairseq.recipe.study_settings import store

from .arguments import Study
from .arms import BASELINE
from .costs import measure_costs
from .report import write_report
from .results import SPECTRUM, changed_setting, check_same, decisive, findings, planned_findings, read_results
from .swap import SWAPPED, swap_all
from .text import BIN, PREPARED_FOLDERS, digests, find_files, prepare
from .trainings import Training, check_flags, course, planned, training_arguments
from .validate import perplexity

SENTENCES = 50
"""Blocks whose attention maps are analysed."""


def run(study: Study) -> None:
    """Trains what is not finished yet, and writes the report; with `report_only` that alone."""
    if study.report_only:
        write_report(study.out)
        return
    if study.swap:
        check_torch("Replacing attention (--no-swap leaves it out)")
    others = {path: read_results(path) for path in study.merge}
    files = find_files(study.data, study.settings.valid)
    precision_arguments(study.settings.precision, study.settings.on_cpu)  # refuses what cannot be had here
    trainings = planned(study)
    for training in trainings:
        check_flags(training, study.settings)
    make_writable(study.out)
    with locked(study.out) as lock:
        settings = decisive(study, digests(files))
        store(study.out, settings, (SPECTRUM, SWAPPED, *PREPARED_FOLDERS), changed_setting, models="runs/*/*")
        prepare(files, study.settings.vocabulary, study.out, study.threads * study.jobs, lock)
    for path, other in others.items():
        check_same(path, planned_findings(trainings, study, settings), other)
    run_in_parallel([partial(_train, training, study) for training in trainings], study.jobs)
    swap_all(study)
    first = (BASELINE, study.lengths[0], study.seeds[0])
    for training in trainings:
        if study.swap and (training.arm.name, training.length, training.seed) == first:
            _analyse(training, study)
    if study.costs:
        with locked(study.out):
            measure_costs(study)
    write_json(study.out / RESULTS, findings(study, settings, others))
    write_report(study.out)


def _train(own: Training, study: Study) -> None:
    settings = study.settings
    arguments = training_arguments(own, settings, own.folder, settings.updates)
    run_training(own.name, own.folder, arguments, course(settings), study.threads, study.jobs)
    found = perplexity(
        own.checkpoint, study.out / BIN, settings, study.threads, own.name, own.folder / "validation.json"
    )
    say(f"  {own.name}: perplexity {found:.2f}")


def _analyse(own: Training, study: Study) -> None:
    """Writes the spectra of a Transformer's attention maps to a folder of the study's."""
    to = study.out / SPECTRUM / f"n{own.length}"
    made_of(to, own.checkpoint)
    if (to / RESULTS).exists():
        return
    command = [
        *(sys.executable, "-m", "linformer_fairseq.spectrum", str(own.checkpoint), str(study.out / BIN)),
        *("--out", str(to), "--sentences", str(SENTENCES), "--lengths", str(own.length), "--rank", str(study.k)),
        *("--threads", str(study.threads)),
    ]
    run_command(command, "spectrum", to / "spectrum.log", study.threads, what=own.name)
