"""What decides the models of a study, and that it stays the same for all of them."""

import shutil
from collections.abc import Iterator
from typing import Any

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import part_of, read_json, write_json
from linformer_fairseq.recipe.steps import locked, remove_folder

from .arguments import Study
from .prepare import PREPARED_FOLDERS

FILE_NAME = "study.json"
DIGESTS = "text sha256 "
"""How the settings begin that are a file's digest."""
FOLDER = "text folder"
"""The setting that says where the text lies."""


def decisive(study: Study) -> dict[str, Any]:
    """Returns what decides the models of a study, whatever their seeds, by names such as "training lr"."""
    settings, start = study.settings.as_json(), next(iter(study.starts.values())).settings.as_json()
    settings["text"] |= settings["text"].pop("data")
    every = {
        **settings,
        "start": start["training"],
        "start resolutions": list(study.start_resolutions),
        "resolutions": list(study.resolutions),
        "lengths": list(study.lengths),
        "k": study.k,
    }
    return {name: value for name, value in _flat("", every) if name not in ("training seed", "start seed")}


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields what nested dictionaries hold, by its path of keys."""
    if not isinstance(value, dict):
        yield name, value
        return
    for key, own in value.items():
        yield from _flat(f"{name} {key}".strip(), own)


def store_settings(study: Study) -> None:
    """Stores what decides the models of a study in its folder.

    It may change until a training has saved a checkpoint; what was prepared by then is removed.

    Raises:
        UserError: it has changed since, or the folder holds something else.
    """
    now, path = decisive(study), study.out / FILE_NAME
    if not path.exists():
        unfinished = part_of(path).name
        if any(not entry.name.startswith(".") and entry.name != unfinished for entry in study.out.iterdir()):
            raise UserError(
                f"{study.out} holds other files than this study's: name a new or an empty folder with --out."
            )
        write_json(path, now)
        return
    before = read_json(path)
    changed = [name for name in dict.fromkeys([*now, *before]) if now.get(name) != before.get(name)]
    if not changed:
        return
    models = study.out.glob("runs/*/*/models/*/")
    if any(study.out.glob("runs/*/*/models/*/checkpoints/*.pt")):
        raise UserError(f"{study.out} was made with {_change(changed[0], before, now)}, or use another --out.")
    for model in models:
        with locked(model, patience=0):  # a training may be under way that has saved nothing yet
            shutil.rmtree(model)
    for folder in PREPARED_FOLDERS:
        remove_folder(study.out / folder)
    write_json(path, now)


def _change(name: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns how a setting has changed, and what to do about it."""
    if name.startswith(DIGESTS):
        return f"another {name.removeprefix(DIGESTS)}: all models need the same text, so put the former one back"
    if name.startswith("text ") and (name in before) != (name in now):
        return f"another text: all models need the same, so give {before.get(FOLDER, 'no --data')} again"
    return f"{name} = {before.get(name)!r}, not {now.get(name)!r}: all models need the same, so give that"
