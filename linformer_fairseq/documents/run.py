"""The order of the study: one text, the trainings on sentences, those on documents, translations, costs, the report."""

import dataclasses
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from linformer_fairseq.average import average, newest
from linformer_fairseq.checkpoints import check_torch
from linformer_fairseq.cli.files import replacing, write_json
from linformer_fairseq.cli.processes import run_command, run_in_parallel
from linformer_fairseq.recipe.merging import RESULTS, Found
from linformer_fairseq.recipe.precision import precision_arguments
from linformer_fairseq.recipe.steps import locked, make_link, make_writable

from .arguments import Study, checkpoint_of
from .arms import CONVERTED, SENTENCES, TRANSFORMER, conversion, following
from .costs import measure_costs, read_costs
from .merge import check_same, read_results
from .prepare import EXAMPLES, SHORT, prepare, source_tokens_per_target_token
from .report import write_report
from .results import Sets, findings, own_findings, planned
from .sets import read_sets
from .settings import store_settings
from .trainings import Training, check_flags, train
from .translate import translate


def run(study: Study) -> None:
    """Trains and translates what is not finished yet, and writes the report; with `report_only` that alone."""
    if study.report_only:
        write_report(study.out)
        return
    others = [(path, read_results(path)) for path in study.merge]
    check_torch("Averaging")
    shared = study.settings.training
    precision_arguments(shared.precision, shared.on_cpu)  # refuses what cannot be had here
    for training in (*study.starts.values(), *filter(is_trained, study.trainings)):
        check_flags(training)
    make_writable(study.out)
    with locked(study.out) as lock:
        store_settings(study)
        text = study.settings.text
        resolutions, threads = (study.start_resolutions, study.resolutions), study.threads * study.jobs
        prepare(text, *resolutions, study.lengths, study.out, threads, lock)
    ratio = source_tokens_per_target_token(study.out)
    study = dataclasses.replace(study, trainings=[following(training, ratio) for training in study.trainings])
    sets = read_sets(study.out, text.source_lang, text.target_lang)
    for path, other in others:
        check_same(path, planned(study, sets), other)
    at_once = min(study.jobs, len(study.starts))
    free = study.threads * study.jobs // at_once  # as the start is not compared with anything, it may take all of them
    starts = [partial(_train, start, SHORT, study, free, at_once) for start in study.starts.values()]
    run_in_parallel(starts, at_once)
    trained = [training for training in study.trainings if is_trained(training)]
    on_documents = [partial(_train, own, EXAMPLES, study, study.threads, study.jobs) for own in trained]
    run_in_parallel(on_documents, study.jobs)
    for training in study.trainings:
        if not is_trained(training):
            _make(training, study)
    run_in_parallel([partial(translate, training, study, sets) for training in study.trainings], study.jobs)
    own = own_findings(study, sets)
    _report(own, others, sets, study)
    if study.costs and trained:
        with locked(study.out):
            measure_costs([training for training in trained if training.seed == study.first_seed], study)
        _report({**own, "costs": read_costs(study.out, list(own["arms"]))}, others, sets, study)


def _report(own: Found, others: Sequence[tuple[Path, Found]], sets: Sets, study: Study) -> None:
    """Writes results.json, and the report of it."""
    write_json(study.out / RESULTS, findings(own, others, sets))
    write_report(study.out)


def is_trained(training: Training) -> bool:
    """Returns whether a model of the study is trained on documents, rather than made of another one."""
    return training.variant not in (SENTENCES, CONVERTED)


def _train(training: Training, folder: str, study: Study, threads: int, jobs: int) -> None:
    """Trains a model on a folder of binary data, as one of `jobs` at a time, and writes the checkpoint that
    `checkpoint_of` names."""
    training.out.mkdir(parents=True, exist_ok=True)
    make_link(training.out / "bin", study.out / "bin" / folder)
    train(training, threads, jobs)
    chosen = checkpoint_of(training)
    if not chosen.exists():
        checkpoints, count = training.folder / "checkpoints", training.settings.translation.average
        if count:
            average(newest(checkpoints, count), chosen)
        else:
            with replacing(chosen) as part:
                shutil.copyfile(checkpoints / "checkpoint_best.pt", part)


def _make(training: Training, study: Study) -> None:
    """Makes a model that is not trained on documents of one that is there."""
    training.folder.mkdir(parents=True, exist_ok=True)
    chosen = checkpoint_of(training)
    if training.variant is SENTENCES:
        make_link(chosen, checkpoint_of(study.starts[training.seed]))
    elif not chosen.exists():
        (transformer,) = [
            own for own in study.trainings if own.variant.name == TRANSFORMER and own.seed == training.seed
        ]
        command = conversion(training.variant, checkpoint_of(transformer), chosen, study.k, study.threads)
        run_command(command, "convert", training.folder / "convert.log", study.threads)
