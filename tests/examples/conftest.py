"""Text and runs that the tests of the recipes share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Shared, mounted
from tests.examples.recipes import EXAMPLES, SMALL, VARIABLES, run, write_text

STUDY = f"""
out: study
text: made text
prepare: {EXAMPLES}/wmt14_en_de/prepare.sh
train: {EXAMPLES}/wmt14_en_de/train.sh
evaluate: {EXAMPLES}/wmt14_en_de/evaluate.sh
env: {{{", ".join(f"{name}: '{value}'" for name, value in VARIABLES.items())}}}
training: {" ".join(SMALL)} --max-update 12 --validate-interval-updates 4 --save-interval-updates 4
translation: --max-len-a 0 --max-len-b 10
seeds: [1, 2]
baseline: transformer
arms:
  transformer: {{arch: transformer}}
  linformer-k4: {{arch: linformer_transformer, flags: --linformer-k 4}}
  tuned: {{arch: transformer, from: transformer, flags: --lr 1e-9, seeds: [1]}}
  converted: {{convert: transformer, flags: --linformer-k 8 --linformer-exact-below 0, seeds: [1]}}
"""


@pytest.fixture(scope="session")
def study(shared: Shared) -> Path:
    """Returns a folder with a text, the YAML of a study, and what it left in `study`."""

    def make(folder: Path) -> None:
        write_text(folder / "made text")
        (folder / "study.yaml").write_text(STUDY, encoding="utf-8")
        run("doit", "-f", EXAMPLES / "studies/dodo.py", "-n", 2, "-P", "thread", "study=study.yaml", cwd=folder).ok()

    return shared("a study", make)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 KiB."""
    with mounted(tmp_path / "disk", 512) as disk:
        yield disk
