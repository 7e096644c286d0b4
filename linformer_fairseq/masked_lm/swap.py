"""Another attention in a model that was trained with full attention: without training, and with a little."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from linformer_fairseq.checkpoints import model_settings, read_checkpoint
from linformer_fairseq.cli.processes import run_command, run_in_parallel
from linformer_fairseq.convert.families import MASKED_LANGUAGE_MODEL
from linformer_fairseq.models.encoder_config import EncoderAttentionConfig
from linformer_fairseq.recipe.course import CHECKPOINTS, run_training
from linformer_fairseq.recipe.steps import made_of

from .arguments import Study
from .arms import BASELINE
from .text import BIN
from .trainings import Training, course, training_arguments, training_of
from .validate import perplexity

SWAPPED = "swapped"
SHARES = (0.0, 0.01, 0.1)
"""Of the updates of a whole training."""


@dataclass(frozen=True)
class Swap:
    """A trained Transformer with another attention, trained for `share` of its own updates after that.

    That of the Transformer itself has the same attention as before, and tells what more training does by itself.
    """

    training: Training
    """That of the same attention from the start, which it is compared with."""
    share: float
    trained: Training
    """That of the Transformer."""

    @property
    def name(self) -> str:
        return f"{self.training.name}, in the trained Transformer"

    @property
    def folder(self) -> Path:
        own = self.training
        return own.out / SWAPPED / own.slug / f"seed-{own.seed}" / f"{self.share:g}"

    @property
    def converted(self) -> Path:
        """The Transformer with another attention, before any training."""
        is_other = self.training.arm.name != BASELINE
        return self.folder.parent / "converted.pt" if is_other else self.trained.checkpoint


def swaps(study: Study) -> list[Swap]:
    """Returns what is made of the Transformers of the first seed: at every length without training, and at the first
    one with some."""
    baseline = next((arm for arm in study.arms if arm.name == BASELINE), None)
    if baseline is None or not study.swap:
        return []
    seed, first = study.seeds[0], study.lengths[0]
    return [
        Swap(training_of(arm, study, length, seed), share, training_of(baseline, study, length, seed))
        for length in study.lengths
        for arm in study.arms
        for share in (SHARES if length == first else SHARES[:1])
        if share or arm is not baseline
    ]


def swap_all(study: Study) -> None:
    """Makes, trains and validates all that is not there yet."""
    wanted = swaps(study)
    for folder, checkpoint in dict.fromkeys((own.folder.parent, own.trained.checkpoint) for own in wanted):
        made_of(folder, checkpoint)
    run_in_parallel([partial(_convert, own, study) for own in _once(wanted)], study.jobs)
    run_in_parallel([partial(_train_and_validate, own, study) for own in wanted], study.jobs)


def swapped_perplexity(own: Swap, study: Study) -> float:
    """Returns the perplexity at the masked tokens of the validation text."""
    checkpoint = own.folder / CHECKPOINTS / "checkpoint_last.pt" if own.share else own.converted
    own.folder.mkdir(parents=True, exist_ok=True)
    data = study.out / BIN
    return perplexity(checkpoint, data, study.settings, study.threads, own.name, own.folder / "validation.json")


def updates_of(own: Swap, study: Study) -> int:
    """Returns the updates of its training."""
    return max(1, round(own.share * study.settings.updates)) if own.share else 0


def _once(wanted: Sequence[Swap]) -> Iterator[Swap]:
    """Yields those that have to be converted, each model once."""
    seen = set()
    for own in wanted:
        if own.training.arm.name != BASELINE and own.converted not in seen:
            seen.add(own.converted)
            yield own


def _convert(own: Swap, study: Study) -> None:
    if not own.converted.exists():
        own.converted.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(own.trained.checkpoint), str(own.converted)]
        command = [
            sys.executable,
            "-m",
            "linformer_fairseq.convert",
            *paths,
            *own.training.flags(study.settings),
            "--texts",
            "0",
        ]
        log = own.converted.with_suffix(".log")
        run_command([*command, "--threads", str(study.threads)], "convert", log, study.threads, what=own.name)


def _train_and_validate(own: Swap, study: Study) -> None:
    if own.share:
        updates = updates_of(own, study)
        arguments = [
            *training_arguments(own.training, study.settings, own.folder, updates),
            *("--finetune-from-model", str(own.converted)),
            *_start_flags(own),
        ]
        how_long = course(study.settings, updates)
        run_training(own.name, own.folder, arguments, how_long, study.threads, study.jobs)
    swapped_perplexity(own, study)


def _start_flags(own: Swap) -> list[str]:
    """Returns the flags of the attention that the conversion has chosen by itself, such as how E and F start."""
    if own.training.arm.name == BASELINE:
        return []
    settings = model_settings(read_checkpoint(own.converted))
    return shlex.split(MASKED_LANGUAGE_MODEL.flags(EncoderAttentionConfig.from_namespace(settings)))
