"""The order of the study: the sets, the fine-tunings with their predictions, the report."""

from functools import partial

from linformer_fairseq.cli.files import write_json
from linformer_fairseq.cli.processes import run_in_parallel
from linformer_fairseq.recipe.course import DONE, run_training
from linformer_fairseq.recipe.merging import RESULTS
from linformer_fairseq.recipe.precision import precision_arguments
from linformer_fairseq.recipe.steps import locked, make_writable
from linformer_fairseq.recipe.study_settings import store

from .arguments import Study
from .predict import store_predictions
from .prepare import RUNS, SETS, prepare
from .pretrained import Pretrained, find_pretrained
from .report import write_report
from .results import check_same, decisive, findings, planned_findings, read_results
from .sets import read_sets
from .trainings import FineTuning, check_flags, course, planned, store_start, training_arguments


def run(study: Study) -> None:
    """Trains what is not finished yet, and writes the report; with `report_only` that alone."""
    if study.report_only:
        write_report(study.out)
        return
    others = {path: read_results(path) for path in study.merge}
    precision_arguments(study.settings.precision, study.settings.on_cpu)  # refuses what cannot be had here
    pretrained = find_pretrained(study.pretrained, study.arms, study.length, study.k, study.ks, study.sharings)
    sets = read_sets(study.data, study.sets)
    settings = decisive(study, pretrained)
    trainings = planned(sets, pretrained, study.seeds, study.out)
    for path, other in others.items():
        check_same(path, planned_findings(trainings, sets, settings), other)
    for training in {training.model: training for training in trainings}.values():
        check_flags(training, pretrained, study.settings)
    make_writable(study.out)
    with locked(study.out) as lock:
        store(study.out, settings, (SETS,), models=f"{SETS}/*/{RUNS}")
        threads = study.threads * study.jobs
        for own in sets:
            prepare(own, pretrained, study.settings.truncate, study.out / SETS / own.name, threads, lock)
    run_in_parallel([partial(_fine_tune, training, pretrained, study) for training in trainings], study.jobs)
    write_json(study.out / RESULTS, findings(study, pretrained, trainings, settings, others))
    write_report(study.out)


def _fine_tune(own: FineTuning, pretrained: Pretrained, study: Study) -> None:
    settings = study.settings
    arguments = training_arguments(own, pretrained, settings)
    if not (own.folder / DONE).exists():
        store_start(own)
    run_training(own.name, own.folder, arguments, course(settings), study.threads, study.jobs)
    store_predictions(own, settings, study.threads)
