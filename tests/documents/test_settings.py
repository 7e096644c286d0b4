"""What decides the models of a study stays the same once there is one."""

from itertools import product
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents.arguments import parse
from linformer_fairseq.documents.prepare import PREPARED_FOLDERS
from linformer_fairseq.documents.settings import FOLDER, decisive, store_settings
from linformer_fairseq.recipe.steps import locked

MODEL = "runs/start/seed-1/models/transformer"


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of a study whose text is prepared and whose first training has begun."""
    folder = tmp_path / "out"
    folder.mkdir()
    store(folder)
    for name in (*PREPARED_FOLDERS, "runs/start/seed-1/models/transformer/checkpoints"):
        (folder / name).mkdir(parents=True)
    return folder


def store(out: Path, *arguments: str) -> None:
    store_settings(parse(["--out", str(out), *arguments]))


def save_checkpoint(out: Path) -> None:
    (out / MODEL / "checkpoints" / "checkpoint_1_500.pt").touch()


def test_seeds_models_and_how_a_study_is_run_are_free(out: Path) -> None:
    save_checkpoint(out)
    store(out, "--seeds", "4", "--arms", "linformer", "--jobs", "3", "--no-costs", "--cost-repeats", "9", "--no-test")
    store(out)


def test_before_the_first_checkpoint_another_setting_prepares_everything_anew(out: Path) -> None:
    store(out)
    assert all((out / name).is_dir() for name in (*PREPARED_FOLDERS, MODEL))
    store(out, "--bpe-merges", "500")
    assert not any((out / name).exists() for name in (*PREPARED_FOLDERS, MODEL))
    store(out, "--bpe-merges", "500")


def test_a_training_that_has_saved_nothing_yet_is_left_alone(out: Path) -> None:
    with locked(out / MODEL), pytest.raises(UserError, match="Another run is working"):
        store(out, "--bpe-merges", "500")
    assert all((out / name).is_dir() for name in (*PREPARED_FOLDERS, MODEL))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dropout", "0.5"], "training dropout = 0.3, not 0.5: all models need the same, so give that"),
        (["--linear-decay"], "training linear_decay = None, not True"),
        (["--start-lr", "0.5"], "start lr = 0.001, not 0.5"),
        (["--k", "8"], "k = 64, not 8"),
        (["--glossary", "9"], "text glossary = 0, not 9"),
    ],
)
def test_after_it_nothing_may_change(out: Path, arguments: list[str], said: str) -> None:
    save_checkpoint(out)
    with pytest.raises(UserError, match=f"was made with {said}.*, or use another --out"):
        store(out, *arguments)
    assert all((out / name).is_dir() for name in PREPARED_FOLDERS)


def test_an_option_that_is_left_out_is_a_change(tmp_path: Path) -> None:
    store(tmp_path, "--linear-decay")
    (tmp_path / MODEL / "checkpoints").mkdir(parents=True)
    save_checkpoint(tmp_path)
    with pytest.raises(UserError, match="training linear_decay = True, not None"):
        store(tmp_path)


def test_another_text_is_named(out: Path, tmp_path: Path) -> None:
    folder, other = tmp_path / "text", tmp_path / "other"
    other.mkdir()
    folder.mkdir()
    for split in ("train", "valid", "test"):
        for lang in ("en", "de"):
            (folder / f"{split}.{lang}").write_text("a\n\nb\n")
    save_checkpoint(out)
    with pytest.raises(UserError, match="was made with another text: all models need the same, so give no --data"):
        store(out, "--data", str(folder))
    given = ("--data", str(folder))
    store(other, *given)
    (other / MODEL / "checkpoints").mkdir(parents=True)
    save_checkpoint(other)
    (folder / "test.de").write_text("a\n\nc\n")
    with pytest.raises(UserError, match=r"made with another test\.de: all models need the same text, so put the"):
        store(other, *given)


def test_a_study_goes_on_that_was_killed_as_it_wrote_its_settings(tmp_path: Path) -> None:
    (tmp_path / "study.json.part").write_text('{"half')
    store(tmp_path)
    store(tmp_path)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("private")
    with pytest.raises(UserError, match="holds other files than this study's"):
        store(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["letters.txt"]


def test_machines_may_have_the_text_in_different_folders(tmp_path: Path) -> None:
    """The setting that results leave out is the folder."""
    for split, lang in product(("train", "valid", "test"), ("en", "de")):
        (tmp_path / f"{split}.{lang}").write_text("a\n\nb\n")
    found = decisive(parse(["--out", str(tmp_path / "out"), "--data", str(tmp_path)]))
    assert [name for name, value in found.items() if value == str(tmp_path)] == [FOLDER]
