"""The configuration files of `fairseq-hydra-train` are those that the flags' dataclasses give."""

from linformer_fairseq.models.hydra_config import FOLDER, configurations


def test_configuration_files_are_not_stale() -> None:
    """If this fails, run `python -m linformer_fairseq.models.hydra_config`."""
    assert {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.iterdir()} == configurations()
