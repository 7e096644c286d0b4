"""The order of the study: one text, then every training with its translations, then the report."""

import os
from functools import partial
from pathlib import Path
from threading import Lock

import torch

from linformer_fairseq.checkpoints import check_torch
from linformer_fairseq.cli.files import replacing, write_json, write_text
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
from .report import facts, report_text
from .results import ENTROPY, VALID, Result, Subset
from .trainings import Training, trainings

_LOADING = Lock()  # fairseq changes a module of another package while it loads


def run(study: Study) -> None:
    """Does what is not done yet."""
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
    write_report(study, subsets)


def write_report(study: Study, subsets: list[str]) -> None:
    """report.md, results.json and the pictures, of what was asked for and is finished."""
    settings, text = study.settings.text, study.out / "text"
    results = {}
    for name in subsets:
        subset = Subset.read(name, text, settings.source_lang, settings.target_lang)
        results[name] = [result for training in trainings(study) if (result := Result.read(training, subset))]
    pictures = {}
    for name in (VALID, TEST):
        picture = study.out / f"{name}.png"
        if can_be_drawn(results.get(name, [])):
            against_length(results[name], picture)
            pictures[f"BLEU against length, {name} set"] = picture.name
        else:
            picture.unlink(missing_ok=True)  # an earlier report's
    write_json(study.out / "results.json", facts(study, results))
    write_text(study.out / "report.md", report_text(study, results, pictures))
    say(f"The report is in {study.out / 'report.md'}.")


def _make_folder(training: Training) -> None:
    """Refuses to mix results of different settings, before anything is made anew."""
    make_writable(training.out)
    with locked(training.out):
        store_settings(training.settings, training.out, prepares=True)


def _link(out: Path, text: Path) -> None:
    """Lets the recipe's steps find the text as if they had made it in `out`; a link that is there may be in use."""
    with locked(out):
        for name in PREPARED_FOLDERS:
            link, target = out / name, Path(os.path.relpath(text / name, out))
            if not (link.is_symlink() and link.readlink() == target):
                with replacing(link) as part:
                    part.unlink(missing_ok=True)  # of a killed run
                    part.symlink_to(target)


def _train_and_translate(training: Training, subsets: list[str], study: Study) -> None:
    say(f"{training.variant.name}, seed {training.seed}:")
    train(training.model, training.settings, training.out, Machines(), study.threads, study.jobs)
    for subset in subsets:
        evaluate(training.model, training.settings, training.out, study.threads, subset)
    if not (training.folder / ENTROPY).exists():
        checkpoint = chosen_checkpoint(training.folder, training.folder / VALID, training.settings)
        with _LOADING:
            torch.set_num_threads(study.threads)
            write_json(training.folder / ENTROPY, attention_entropy(checkpoint, training.out / "bin", VALID))
