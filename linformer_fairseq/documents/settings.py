"""What decides the models of a study, and that it stays the same for all of them."""

from typing import Any

from linformer_fairseq.recipe.study_settings import change, flat, store

from .arguments import Study
from .prepare import PREPARED_FOLDERS

DIGESTS = "text sha256 "
"""How the settings begin that are a file's digest."""
FOLDER = "text folder"
"""The setting that says where the text lies."""


def decisive(study: Study) -> dict[str, Any]:
    """Returns what decides the models of a study, whatever their seeds, by names such as "training lr"."""
    settings, start = study.settings.as_json(), next(iter(study.starts.values())).settings.as_json()
    every = {
        **settings,
        "start": start["training"],
        "start resolutions": list(study.start_resolutions),
        "resolutions": list(study.resolutions),
        "lengths": list(study.lengths),
        "k": study.k,
    }
    return dict(flat("", every))


def store_settings(study: Study) -> None:
    """Stores what decides the models of a study in its folder, as `study_settings.store` does."""
    store(study.out, decisive(study), PREPARED_FOLDERS, _change)


def _change(name: str, before: dict[str, Any], now: dict[str, Any]) -> str:
    """Returns how a setting has changed, and what to do about it."""
    if name.startswith(DIGESTS):
        return f"another {name.removeprefix(DIGESTS)}: all models need the same text, so put the former one back"
    if name.startswith("text ") and (name in before) != (name in now):
        return f"another text: all models need the same, so give {before.get(FOLDER, 'no --data')} again"
    return change(name, before, now)
