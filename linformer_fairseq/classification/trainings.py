"""The fine-tunings of a study, and how fairseq-train is called for each."""

from argparse import ArgumentParser
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fairseq.models import ARCH_MODEL_REGISTRY

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, sha256_of, write_json
from linformer_fairseq.masked_lm import trainings as pretrainings
from linformer_fairseq.recipe.course import CHECKPOINTS, DONE, Course
from linformer_fairseq.recipe.flags import check_unchanged, parse_training, refusing

from .arguments import Settings
from .prepare import BIN, SETS
from .pretrained import Pretrained
from .sets import TRAIN, TextSet

HEAD = "sentence_classification_head"
"""fairseq's name for the layers that classify."""
START = "start.json"
"""Which pretrained model a fine-tuning has begun with."""
BEGIN, SEPARATOR = 0, 2
"""The numbers of the symbols before a text, and between two, in fairseq's dictionaries."""
_MAY_DIFFER = ("dropout", "pooler", "load_checkpoint_heads", "max_positions")
"""Parts of the names of settings that a model may have otherwise than in its pretraining, or that are checked
elsewhere."""


@dataclass(frozen=True)
class FineTuning:
    """A model of the study."""

    texts: TextSet
    model: str
    """Its name in results.json."""
    label: str
    """What the user is told that it is."""
    start: pretrainings.Training
    """The pretrained model that it begins with."""
    seed: int
    out: Path
    """The study's folder."""

    @property
    def folder(self) -> Path:
        return self.set_folder / "runs" / self.start.slug / f"seed-{self.seed}"

    @property
    def set_folder(self) -> Path:
        return self.out / SETS / self.texts.name

    @property
    def data(self) -> Path:
        """The binary data."""
        return self.set_folder / BIN

    @property
    def name(self) -> str:
        """What the user is told that is trained."""
        return f"{self.label}, {self.texts.name}, seed {self.seed}"

    @property
    def checkpoint(self) -> Path:
        """The one with the best accuracy on the dev split."""
        return self.folder / CHECKPOINTS / "checkpoint_best.pt"


def planned(sets: Sequence[TextSet], pretrained: Pretrained, seeds: Sequence[int], out: Path) -> list[FineTuning]:
    """Returns all fine-tunings of a study, those of the first seed before the others."""
    return [
        begun(FineTuning(own, model, pretrained.label(model), pretrained.start(model, seed), seed, out))
        for seed in seeds
        for own in sets
        for model in pretrained.models
    ]


def begun(own: FineTuning) -> FineTuning:
    """Returns a fine-tuning with the pretrained model that it has begun with, if it has.

    Raises:
        UserError: that model is not there any more, or another one.
    """
    path = own.folder / START
    if not path.exists() or not ((own.folder / DONE).exists() or any((own.folder / CHECKPOINTS).glob("*.pt"))):
        return own
    before = read_json(path)
    found = replace(own, start=replace(own.start, seed=before["seed"]))
    start = found.start.checkpoint
    if not start.is_file() or sha256_of(start) != before["sha256"]:
        raise UserError(
            f"{own.folder} has begun with another {start}: put the former one back, remove this folder to begin with "
            "the new one, or use another --out."
        )
    return found


def store_start(own: FineTuning) -> None:
    """Stores in the folder of a fine-tuning which pretrained model it begins with."""
    own.folder.mkdir(parents=True, exist_ok=True)
    write_json(own.folder / START, {"seed": own.start.seed, "sha256": sha256_of(own.start.checkpoint)})


def course(settings: Settings) -> Course:
    """Returns how long a training is, and where and in which precision it runs."""
    return Course(settings.epochs, 0, settings.precision, settings.on_cpu)


def training_arguments(own: FineTuning, pretrained: Pretrained, settings: Settings) -> list[str]:
    """Returns the arguments of fairseq-train, for the most part those of fairseq's examples/roberta.

    `--finetune-from-model` is `--restore-file` with `--reset-optimizer`, `--reset-dataloader` and `--reset-meters`, but
    for a training that goes on where it was stopped.
    """
    updates = settings.epochs * -(-len(own.texts.splits[TRAIN]) // settings.batch_size)
    return [
        str(own.data),
        *("--task", "sentence_prediction", "--criterion", "sentence_prediction"),
        *("--num-classes", str(len(own.texts.labels)), "--classification-head-name", HEAD),
        *("--init-token", str(BEGIN), "--separator-token", str(SEPARATOR), "--max-positions", str(own.start.length)),
        *pretrainings.model_arguments(own.start, pretrained.settings),
        *("--finetune-from-model", str(own.start.checkpoint)),
        *("--warmup-updates", str(round(settings.warmup * updates)), "--max-epoch", str(settings.epochs)),
        *("--batch-size", str(settings.batch_size)),
        *("--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric"),
        *pretrainings.common_arguments(settings, updates, own.seed, own.folder),
    ]


def check_flags(own: FineTuning, pretrained: Pretrained, settings: Settings) -> None:
    """Refuses flags that fairseq-train, or the attention, would refuse hours later, and a model that is not built like
    its pretraining.

    Raises:
        UserError: naming the model.
    """
    pretrainings.check_flags(own.start, pretrained.settings)
    with refusing(own.name):
        arguments = training_arguments(own, pretrained, settings)
        args = parse_training(arguments)
        without = training_arguments(own, pretrained, replace(settings, train_args=()))
        check_unchanged(args, without, settings.train_args, "what follows --")
        before = parse_training(
            pretrainings.training_arguments(
                own.start, pretrained.settings, own.start.folder, pretrained.settings.updates
            )
        )
        for name in _model_settings(args.arch):
            if getattr(args, name, None) != getattr(before, name, None):
                raise ValueError(
                    f"--{name.replace('_', '-')} is {getattr(args, name, None)} here, but was "
                    f"{getattr(before, name, None)} in its pretraining, so give it after -- as there"
                )


def _model_settings(arch: str) -> list[str]:
    """Returns the names of what a model is built with."""
    parser = ArgumentParser(add_help=False)
    ARCH_MODEL_REGISTRY[arch].add_args(parser)
    return [action.dest for action in parser._actions if not any(part in action.dest for part in _MAY_DIFFER)]
