"""The order of the study: one text, then every training with its translations, then the report."""

from functools import partial
from pathlib import Path
from threading import Lock

import torch

from linformer_fairseq.checkpoints import check_torch
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json, write_text
from linformer_fairseq.cli.processes import run_in_parallel
from linformer_fairseq.cli.progress import say
from linformer_fairseq.recipe.evaluate import TEST, chosen_checkpoint, evaluate
from linformer_fairseq.recipe.flags import check_flags
from linformer_fairseq.recipe.launch import Machines
from linformer_fairseq.recipe.pipeline import make_writable
from linformer_fairseq.recipe.prepare import prepare
from linformer_fairseq.recipe.settings import PREPARED_FOLDERS, store_settings
from linformer_fairseq.recipe.steps import locked, make_link
from linformer_fairseq.recipe.train import train

from .arguments import Study
from .entropy import attention_entropy
from .plots import against_length
from .report import report_text, variants_of
from .results import ENTROPY, VALID, Result, Subset, findings
from .variants import Training

RESULTS = "results.json"
_LOADING = Lock()  # fairseq changes a module of another package while it loads


def run(study: Study) -> None:
    """Trains and translates what is not finished yet, and writes the report; with `report_only` that alone."""
    if study.report_only:
        write_report(study.out)
        return
    if study.settings.translation.average:
        check_torch("Averaging")
    for training in study.trainings:
        check_flags(training.model, training.settings, training.out)
    for training in study.trainings:  # refuses a folder with results of other settings before anything is replaced
        make_writable(training.out)
        with locked(training.out):
            store_settings(training.settings, training.out, prepares=True)
    text = study.out / "text"
    make_writable(text)
    with locked(text) as lock:
        store_settings(study.settings, text, prepares=True)
        prepare(study.settings.text, text, study.threads * study.jobs, lock)
    for training in study.trainings:
        _link(training.out, text)
    subsets = [VALID, TEST] if study.test else [VALID]
    tasks = [partial(_train_and_translate, training, subsets, study) for training in study.trainings]
    run_in_parallel(tasks, study.jobs)
    settings, results = study.settings.text, {}
    for name in subsets:
        subset = Subset.read(name, text, settings.source_lang, settings.target_lang)
        results[name] = [result for training in study.trainings if (result := Result.read(training, subset))]
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
            f"{out / RESULTS} is missing, or older than this command: run the study without --report-only first, which "
            "keeps what is finished."
        )
    pictures = {}
    for name in (VALID, TEST):
        picture, rows = out / f"{name}.png", [row for row in found["results"] if row["subset"] == name]
        if {row["k"] for row in rows} > {None}:  # a baseline, and what is compared with it
            against_length(rows, variants_of(found), picture)
            pictures[f"BLEU against length, {name} set"] = picture.name
        else:
            picture.unlink(missing_ok=True)  # an earlier report's
    write_text(out / "report.md", report_text(found, pictures))
    say(f"The report is in {out / 'report.md'}.")


def _link(out: Path, text: Path) -> None:
    """Links the prepared text into `out`, where the recipe's steps look for it."""
    with locked(out):
        for name in PREPARED_FOLDERS:
            make_link(out / name, text / name)


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
