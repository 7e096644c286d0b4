"""The trainings that a study is made of."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

from linformer_fairseq.recipe.settings import Model, Settings

from .arguments import Study
from .variants import Variant


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
    """All of them, seed by seed, so that the first seed of every variant is known early."""
    found = []
    for seed in study.seeds:
        for variant in study.variants:
            for model in variant.models(study.ks):
                flags = variant.flags(model.k).split()
                training = dataclasses.replace(study.settings.training, seed=seed, linformer_args=flags)
                settings = dataclasses.replace(study.settings, training=training)
                out = study.out / "runs" / variant.folder(model) / f"seed-{seed}"
                found.append(Training(variant, model, seed, settings, out))
    return found
