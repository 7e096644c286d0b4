"""What one output folder holds still: the settings that all its models share."""

import argparse
import dataclasses
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json

FILE_NAME = "settings.json"
POSITION_FLAGS = ("--max-source-positions", "--max-target-positions")
FAIRSEQ_MAX_POSITIONS = 1024  # fairseq's default for both
PREPARED_FOLDERS = ("raw", "tok", "bpe", "bin", "models")


@dataclass(frozen=True)
class Settings:
    """Everything that has to be equal for two rows of the report to be comparable."""

    data: dict[str, Any]  # where the text comes from: a folder and its files' digests, or the made corpus' sizes
    source_lang: str
    target_lang: str
    bpe_merges: int
    arch: str
    size_flags: list[str]
    epochs: int
    max_tokens: int
    lr: float
    warmup_updates: int
    dropout: float
    label_smoothing: float
    validate_updates: int
    seed: int
    beam: int
    lenpen: float
    threads: int
    linformer_args: list[str]
    train_args: list[str]

    @property
    def device_flags(self) -> list[str]:
        """Flags for fairseq-train that the other commands need too."""
        return [flag for flag in ("--cpu", "--fp16") if flag in self.train_args]

    @property
    def longest(self) -> dict[str, int]:
        """The longest source and target that the models take, by fairseq's flags."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        for flag in POSITION_FLAGS:
            parser.add_argument(flag, dest=flag, type=int, default=FAIRSEQ_MAX_POSITIONS)
        return vars(parser.parse_known_args(self.train_args)[0])


def keep(settings: Settings, out: Path) -> None:
    """Store the settings with the results, and refuse to mix results of different settings.

    They bind from the first saved checkpoint on; what was only prepared with other settings is made anew. A folder
    that holds anything but results is refused, as nothing in it is ours to replace.
    """
    path = out / FILE_NAME
    now = dataclasses.asdict(settings)
    before = read_json(path) if path.exists() else None
    ours = isinstance(before, dict) and set(now) <= set(before)
    if not ours and any(not entry.name.startswith(".") for entry in out.iterdir()):
        raise UserError(f"{out} holds other files than this recipe's: name a new or an empty folder with --out.")
    if ours:
        changed = [name for name in now if before.get(name) != now[name]]
        if not changed:
            return
        if any(out.glob("models/*/checkpoints/*.pt")):
            name = changed[0]
            raise UserError(
                f"{out} was made with {name} = {before.get(name)!r}, not {now[name]!r}: all rows of a report need "
                "the same settings, so use another --out."
            )
        for folder in PREPARED_FOLDERS:
            shutil.rmtree(out / folder, ignore_errors=True)
    write_json(path, now)


@dataclass(frozen=True)
class Model:
    """One row of the report: the Transformer (k = 0) or a Linformer."""

    k: int = 0
    attention: str = ""

    @property
    def name(self) -> str:
        return f"Linformer k={self.k} ({self.attention})" if self.k else "Transformer"

    @property
    def slug(self) -> str:
        """The model's folder."""
        return f"linformer-k{self.k}-{self.attention.replace(',', '-')}" if self.k else "transformer"

    def arguments(self, settings: Settings) -> list[str]:
        """What makes fairseq-train build this model; the rest is the same for all."""
        if not self.k:
            return ["--arch", settings.arch, *settings.size_flags]
        return [
            *("--arch", f"linformer_{settings.arch}", *settings.size_flags),
            *("--linformer-k", str(self.k), "--linformer-attention", self.attention),
            *settings.linformer_args,
        ]
