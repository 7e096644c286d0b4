"""Fixtures of the recipe's tests."""

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SPLITS = ("train", "valid", "test")
SIDES = {"en": "A man waits.\nThe dog sleeps.\n", "de": "Ein Mann wartet.\nDer Hund schläft.\n"}


@pytest.fixture(autouse=True)
def _log_level() -> Iterator[None]:
    """The recipe quietens the root logger; other tests may want to hear it."""
    level = logging.getLogger().level
    yield
    logging.getLogger().setLevel(level)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture
def text_folder(tmp_path: Path) -> Path:
    """A folder of text in which nothing is wrong."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split in SPLITS:
        for lang, text in SIDES.items():
            (folder / f"{split}.{lang}").write_text(text, encoding="utf-8")
    return folder
