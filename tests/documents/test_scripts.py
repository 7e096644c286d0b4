"""What the scripts of examples/documents train."""

from itertools import product
from pathlib import Path

import pytest

from linformer_fairseq.documents.arguments import Study, parse
from linformer_fairseq.documents.arms import ARMS
from tests.recipe.scripts import study_arguments


def study(script: str, out: Path, *arguments: str) -> Study:
    """What a script asks for."""
    given = study_arguments(
        f"documents/{script}", out, "--out", str(out), *arguments, program="linformer_fairseq.documents"
    )
    return parse(given)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Documents of a user's own."""
    for split, lang in product(("train", "valid", "test"), ("en", "de")):
        (tmp_path / f"{split}.{lang}").write_text("a b\nc\n\nb\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("own", [False, True], ids=["made", "own"])
def test_every_model_is_trained_on_long_documents(own: bool, folder: Path) -> None:
    given = ("run", folder / "out", f"--data={folder}") if own else ("study", folder / "out")
    found = study(*given)
    assert {training.variant.name for training in found.trainings} == set(ARMS)
    assert (found.lengths, found.k, set(found.starts)) == ((512, 1024, 2048, 4096), 128, {1, 2, 3})
    text, training = found.settings.text, found.settings.training
    assert (text.max_subwords, training.linear_decay) == (2048, True)
    assert (text.dataset.name == "The synthetic corpus of documents") != own


def test_arguments_of_a_script_are_its_users(tmp_path: Path) -> None:
    found = study("study", tmp_path / "out", "--updates", "5000", "--jobs", "1", "--arms", "transformer")
    assert (found.settings.training.updates, found.jobs, len(found.trainings)) == (5000, 1, 3)


def test_the_quick_form_is_short(tmp_path: Path) -> None:
    found = study("run", tmp_path / "out")
    assert (found.settings.training.updates, set(found.starts)) == (300, {1})
