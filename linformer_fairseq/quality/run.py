"""The order of the study: one text, then every training with its translations, then the report."""

import os
from functools import partial
from pathlib import Path
from threading import Lock

import torch

from linformer_fairseq.checkpoints import check_torch
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, replacing, write_json, write_text
from linformer_fairseq.cli.processes import run_in_parallel
from linformer_fairseq.cli.progress import say
from linformer_fairseq.recipe.evaluate import TEST, chosen_checkpoint, evaluate
from linformer_fairseq.recipe.flags import check_flags
from linformer_fairseq.recipe.launch import Machines
from linformer_fairseq.recipe.pipeline import make_writable
from linformer_fairseq.recipe.prepare import prepare
from linformer_fairseq.recipe.settings import PREPARED_FOLDERS, store_settings
from linformer_fairseq.recipe.steps import locked
from linformer_fairseq.recipe.train import train

from .arguments import Study
from .entropy import attention_entropy
from .plots import against_length, can_be_drawn
from .report import report_text
from .results import ENTROPY, VALID, Result, Subset, findings
from .trainings import Training, trainings

RESULTS = "results.json"
_LOADING = Lock()  # fairseq changes a module of another package while it loads


def run(study: Study) -> None:
    """Trains and translates what is not finished yet, and writes the report; with `only_report` that alone."""
    if study.only_report:
        write_report(study.out)
        return
    asked = trainings(study)
    if study.settings.translation.average:
        check_torch("Averaging")
    for training in asked:
        check_flags(training.model, training.settings, training.out)
    for training in asked:
        _make_folder(training)
    text = study.out / "text"
    make_writable(text)
    with locked(text) as lock:
        store_settings(study.settings, text, prepares=True)
        prepare(study.settings.text, text, study.threads * study.jobs, lock)
    for out in {training.out for training in asked}:
        _link(out, text)
    subsets = [VALID, TEST] if study.test else [VALID]
    run_in_parallel([partial(_train_and_translate, training, subsets, study) for training in asked], study.jobs)
    report(study, subsets)


def report(study: Study, subsets: list[str]) -> None:
    """Writes results.json, of what was asked for and is finished, and the report of it."""
    settings, text = study.settings.text, study.out / "text"
    results = {}
    for name in subsets:
        subset = Subset.read(name, text, settings.source_lang, settings.target_lang)
        results[name] = [result for training in trainings(study) if (result := Result.read(training, subset))]
    write_json(study.out / RESULTS, findings(study, results))
    write_report(study.out)


def write_report(out: Path) -> None:
    """Writes report.md and the pictures of the results.json in a folder.

    Raises:
        UserError: there is none, or it is of a version that did not store all that the report says.
    """
    found = read_json(out / RESULTS) if (out / RESULTS).is_file() else {}
    if "differences" not in found:
        raise UserError(
            f"{out / RESULTS} is missing, or older than this command: run the study without --only-report first, which "
            "keeps what is finished."
        )
    pictures = {}
    for name in (VALID, TEST):
        picture, rows = out / f"{name}.png", [row for row in found["results"] if row["subset"] == name]
        if can_be_drawn(rows):
            against_length(rows, picture)
            pictures[f"BLEU against length, {name} set"] = picture.name
        else:
            picture.unlink(missing_ok=True)  # an earlier report's
    write_text(out / "report.md", report_text(found, pictures))
    say(f"The report is in {out / 'report.md'}.")


def _make_folder(training: Training) -> None:
    """Makes the folder of a training, or refuses one with results of other settings before anything is replaced."""
    make_writable(training.out)
    with locked(training.out):
        store_settings(training.settings, training.out, prepares=True)


def _link(out: Path, text: Path) -> None:
    """Links the prepared text into `out`, where the recipe's steps look for it; a link that is right is left alone, as
    a training may be using it."""
    with locked(out):
        for name in PREPARED_FOLDERS:
            link, target = out / name, Path(os.path.relpath(text / name, out))
            if not (link.is_symlink() and link.readlink() == target):
                with replacing(link) as part:
                    part.unlink(missing_ok=True)  # of a killed run
                    part.symlink_to(target)


def _train_and_translate(training: Training, subsets: list[str], study: Study) -> None:
    say(f"{training.variant.label}, seed {training.seed}:")
    train(training.model, training.settings, training.out, Machines(), study.threads, study.jobs)
    for subset in subsets:
        evaluate(training.model, training.settings, training.out, study.threads, subset)
    if not (training.folder / ENTROPY).exists():
        checkpoint = chosen_checkpoint(training.folder, training.folder / VALID, training.settings)
        with _LOADING:
            torch.set_num_threads(study.threads)
            write_json(training.folder / ENTROPY, attention_entropy(checkpoint, training.out / "bin", VALID))
