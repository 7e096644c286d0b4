"""The settings of a study that has several trainings, and that they stay the same for all of them."""

import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import part_of, read_json, write_json

from .steps import locked, remove_folder

FILE_NAME = "study.json"
MODELS = "runs/*/*/models/*"
"""Where a study has the folders of its models."""


def flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what nested dictionaries hold, by its path of keys."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, own in value.items():
        yield from flat(f"{name} {key}".strip(), own)


def change(name: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns how a setting has changed, and what to do about it."""
    return f"{name} = {before.get(name)!r}, not {now.get(name)!r}: all models need the same, so give that"


def store(
    out: Path,
    now: dict[str, Any],
    prepared: Sequence[str],
    describe: Callable[[str, dict[str, Any], dict[str, Any]], str] = change,
    models: str = MODELS,
) -> None:
    """Stores what decides the models of a study in its folder `out`.

    It may change until a training has saved a checkpoint; what was prepared by then is removed.

    Args:
        now: the settings by name.
        prepared: the folders that were made with them.
        describe: says how a setting has changed, and what to do about it.
        models: where the folders of models are.

    Raises:
        UserError: it has changed since, or the folder holds something else.
    """
    path = out / FILE_NAME
    known = {path.name, part_of(path).name}
    before = read_json(path) if path.exists() else None
    of_another = before is not None and 2 * len(before.keys() & now.keys()) < len(before.keys() | now.keys())
    others = before is None and any(
        not entry.name.startswith(".") and entry.name not in known for entry in out.iterdir()
    )
    if of_another or others:
        raise UserError(f"{out} holds other files than this study's: name a new or an empty folder with --out.")
    if before is None:
        write_json(path, now)
        return
    changed = [name for name in dict.fromkeys([*now, *before]) if now.get(name) != before.get(name)]
    if not changed:
        return
    if any(out.glob(f"{models}/checkpoints/*.pt")):
        raise UserError(f"{out} was made with {describe(changed[0], before, now)}, or use another --out.")
    for model in out.glob(f"{models}/"):
        with locked(model, patience=0):  # a training may be under way that has saved nothing yet
            shutil.rmtree(model)
    for folder in prepared:
        remove_folder(out / folder)
    write_json(path, now)
