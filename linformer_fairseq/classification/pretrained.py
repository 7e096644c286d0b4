"""The pretrained models: what a study of masked language models has left in its folder."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, sha256_of
from linformer_fairseq.masked_lm import arguments as masked_lm
from linformer_fairseq.masked_lm.arms import ARMS, LINFORMER, Arm
from linformer_fairseq.masked_lm.text import BIN, MODEL, PIECES
from linformer_fairseq.masked_lm.trainings import SHARING, Training
from linformer_fairseq.recipe.course import DONE
from linformer_fairseq.recipe.study_settings import FILE_NAME

_LENGTH = re.compile(r"-n(\d+)(?:-|$)")
"""In the folder's name of a pretrained model."""


@dataclass(frozen=True)
class Pretrained:
    """The models that are fine-tuned."""

    folder: Path
    settings: masked_lm.Settings
    """Of the pretraining."""
    stored: dict[str, Any]
    """The same with all else that decided its models, by name."""
    length: int
    """n, tokens that the models take."""
    k: int
    models: dict[str, list[Training]]
    """The pretrainings of every model, by seed: of every arm, and of Linformer with another k or sharing."""

    @property
    def pieces(self) -> Path:
        """sentencepiece's model."""
        return self.folder / PIECES / MODEL

    @property
    def dictionary(self) -> Path:
        return self.folder / BIN / "dict.txt"

    def start(self, model: str, seed: int) -> Training:
        """Returns the pretraining that a fine-tuning begins with: that with the same seed, or else the first."""
        found = self.models[model]
        return next((training for training in found if training.seed == seed), found[0])

    def label(self, model: str) -> str:
        """Returns what tables call a model."""
        own = self.models[model][0]
        k = f"k = {own.k}" if own.k not in (0, self.k) else ""
        return ", ".join(filter(None, (own.arm.label, k, own.other_sharing)))

    def digests(self) -> dict[str, str]:
        """Returns the digests of what texts become numbers with."""
        return {"pieces sha256": sha256_of(self.pieces), "dictionary sha256": sha256_of(self.dictionary)}


def find_pretrained(
    folder: Path,
    arms: Sequence[str],
    length: int | None,
    k: int | None,
    ks: Sequence[int] = (),
    sharings: Sequence[str] = (),
) -> Pretrained:
    """Returns the finished pretrainings of a study.

    Args:
        arms: those wanted; none for all that are there.
        length: n; None for the least that is there.
        k: None for that of the study.
        ks, sharings: Linformer is wanted with each of these, too.

    Raises:
        UserError: the folder is not that of such a study, or has no such model.
    """
    stored = read_json(folder / FILE_NAME) if (folder / FILE_NAME).is_file() else {}
    names = {field.name for field in fields(masked_lm.Settings)} - {"valid"}
    if not {*names, "k"} <= stored.keys():
        raise UserError(
            f"--pretrained {folder} is not the folder of a study of masked language models: name the --out of "
            "python -m linformer_fairseq.masked_lm."
        )
    own = {name: tuple(value) if isinstance(value := stored[name], list) else value for name in names}
    lengths = {
        int(found[1])
        for done in folder.glob(f"runs/*/seed-*/{DONE}")
        if (found := _LENGTH.search(done.parent.parent.name))
    }
    if not lengths:
        raise UserError(f"{folder} has no finished model: run the study of masked language models first.")
    if length is not None and length not in lengths:
        raise UserError(
            f"{folder} has no model of {length} tokens: choose --length from {', '.join(map(str, sorted(lengths)))}, "
            "or pretrain one."
        )
    length, k = length or min(lengths), k or stored["k"]
    models = {name: _pretrainings(folder, arm, length, k, SHARING) for name, arm in ARMS.items()}
    there = [name for name, found in models.items() if found]
    missing = [name for name in arms if not models[name]]
    if missing or not there:
        which = f"model {missing[0]}" if missing else "model"
        other = f"--arms from {', '.join(there)}" if there else "another --k"
        raise UserError(
            f"{folder} has no finished {which} of {length} tokens with k = {k}: choose {other}, or pretrain it."
        )
    linformer = ARMS[LINFORMER]
    others = {f"{LINFORMER}-k{other}": (other, SHARING) for other in ks if other != k}
    others |= {f"{LINFORMER}-{other}": (k, other) for other in sharings if other != SHARING}
    models = {name: models[name] for name in there if name in (arms or there)}
    models |= {name: _pretrainings(folder, linformer, length, *own) for name, own in others.items()}
    for name in others:
        if not models[name]:
            raise UserError(
                f"{folder} has no finished model {name} of {length} tokens: change --ks or --sharings, or pretrain it."
            )
    found = Pretrained(folder, masked_lm.Settings(valid=(), **own), stored, length, k, models)
    for path in (found.pieces, found.dictionary):
        if not path.is_file():
            raise UserError(f"{path} is missing: run the study of masked language models again, or copy it whole.")
    return found


def _pretrainings(folder: Path, arm: Arm, length: int, k: int, sharing: str) -> list[Training]:
    """Returns the finished pretrainings of an arm by seed, whose k and sharing count where they mean anything to it."""
    own = (arm, length, k if arm.uses_k else 0, sharing if arm.name == LINFORMER else "")
    runs = Training(*own, seed=0, out=folder).folder.parent.glob("seed-*[0-9]")
    seeds = sorted(int(path.name.removeprefix("seed-")) for path in runs)
    every = (Training(*own, seed=seed, out=folder) for seed in seeds)
    return [model for model in every if (model.folder / DONE).is_file() and model.checkpoint.is_file()]
