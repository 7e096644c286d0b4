"""The order of the study: one text, then every training with its translations, then the report."""

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from linformer_fairseq.cli.processes import side_by_side
from linformer_fairseq.cli.progress import say
from linformer_fairseq.recipe.evaluate import TEST, evaluate
from linformer_fairseq.recipe.flags import check_flags
from linformer_fairseq.recipe.launch import Machines
from linformer_fairseq.recipe.pipeline import make_writable
from linformer_fairseq.recipe.prepare import prepare
from linformer_fairseq.recipe.settings import PREPARED_FOLDERS, Model, Settings, keep
from linformer_fairseq.recipe.steps import locked
from linformer_fairseq.recipe.train import train
from linformer_fairseq.recipe.wmt14 import OFFICIAL

from .arguments import Study
from .variants import Variant

VALID = "valid"


@dataclass(frozen=True)
class Training:
    """One model of the study, in an output folder of the recipe's that all of the same flags and seed share."""

    variant: Variant
    model: Model
    seed: int
    settings: Settings
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / "models" / self.model.slug


def trainings(study: Study) -> list[Training]:
    """All of them, seed by seed, so that the first seed of every variant is known early."""
    found = []
    for seed in study.seeds:
        for variant in study.variants:
            for model in variant.models(study.ks):
                flags = variant.flags_for(model)
                training = dataclasses.replace(study.settings.training, seed=seed, linformer_args=flags)
                settings = dataclasses.replace(study.settings, training=training)
                out = study.out / "runs" / variant.folder_for(model) / f"seed-{seed}"
                found.append(Training(variant, model, seed, settings, out))
    return found


def run(study: Study) -> None:
    """Does what is not done yet."""
    asked = trainings(study)
    for training in asked:
        check_flags(training.model, training.settings, training.out)
    for training in asked:
        _make_folder(training)
    text = study.out / "text"
    make_writable(text)
    with locked(text) as lock:
        keep(study.settings, text, prepares=True)
        prepare(study.settings.text, OFFICIAL, text, study.threads * study.jobs, lock)
    for out in {training.out for training in asked}:
        _link(out, text)
    subsets = [VALID, TEST] if study.test else [VALID]
    side_by_side([partial(_train_and_translate, training, subsets, study) for training in asked], study.jobs)


def _make_folder(training: Training) -> None:
    """Refuses to mix results of different settings, before anything is made anew."""
    make_writable(training.out)
    with locked(training.out):
        for name in PREPARED_FOLDERS:
            (training.out / name).unlink(missing_ok=True)
        keep(training.settings, training.out, prepares=False)


def _link(out: Path, text: Path) -> None:
    """Lets the recipe's steps find the text as if they had made it in `out`."""
    with locked(out):
        for name in PREPARED_FOLDERS:
            (out / name).symlink_to(text / name)


def _train_and_translate(training: Training, subsets: list[str], study: Study) -> None:
    say(f"{training.variant.name}, seed {training.seed}:")
    train(training.model, training.settings, training.out, Machines(), study.threads, study.jobs)
    for subset in subsets:
        evaluate(training.model, training.settings, training.out, study.threads, subset)
