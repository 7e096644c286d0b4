"""The trainings that a study is made of."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from linformer_fairseq.recipe.settings import Model, Settings

from .arguments import Study
from .variants import FORMER_NAMES, Variant


@dataclass(frozen=True)
class Training:
    """One model of the study, in an output folder of the recipe's of its own."""

    variant: Variant
    model: Model
    seed: int
    settings: Settings
    out: Path

    @property
    def folder(self) -> Path:
        return self.out / "models" / self.model.slug


def trainings(study: Study) -> list[Training]:
    """Returns all trainings, seed by seed, so that the first seed of every variant is known early."""
    found = []
    for seed in study.seeds:
        for variant in study.variants:
            for model in variant.models(study.ks):
                flags = variant.flags_for(model.k)
                training = dataclasses.replace(study.settings.training, seed=seed, linformer_args=flags)
                settings = dataclasses.replace(study.settings, training=training)
                found.append(Training(variant, model, seed, settings, _folder(study, variant, model) / f"seed-{seed}"))
    return found


def _folder(study: Study, variant: Variant, model: Model) -> Path:
    """Returns the folder of a model's trainings; a study that was begun under a former name goes on there."""
    former = [old for old, new in FORMER_NAMES.items() if new == variant.name]
    ending = f"-k{model.k}" if model.k else ""
    folder, *others = (study.out / "runs" / f"{name}{ending}" for name in (variant.name, *former))
    return next((other for other in others if other.is_dir()), folder)
