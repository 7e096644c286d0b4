"""Results of different settings are never mixed, and what costs hours is never thrown away."""

from pathlib import Path

import pytest
import torch

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.settings import Settings, store_settings
from linformer_fairseq.recipe.steps import locked

SIZE_FLAGS = (
    "--encoder-layers 2 --encoder-embed-dim 128 --encoder-ffn-embed-dim 256 --encoder-attention-heads 4 "
    "--decoder-layers 2 --decoder-embed-dim 128 --decoder-ffn-embed-dim 256 --decoder-attention-heads 4"
)
STORED = {
    "text": {
        "data": {"made": {"train": 14000, "valid": 500, "test": 500}, "seed": 1},
        "source_lang": "en",
        "target_lang": "de",
        "bpe": "subword-nmt",
        "bpe_merges": 800,
        "normalise_punctuation": False,
        "aggressive_hyphens": False,
        "max_subwords": 0,
        "max_ratio": 0.0,
    },
    "training": {
        "arch": "transformer",
        "size_flags": SIZE_FLAGS.split(),
        "epochs": 4,
        "updates": 0,
        "max_tokens": 1024,
        "update_batches": 1,
        "precision": "fp32",
        "lr": 0.003,
        "warmup_updates": 100,
        "dropout": 0.1,
        "label_smoothing": 0.1,
        "validate_updates": 200,
        "keep_checkpoints": 1,
        "seed": 1,
        "linformer_args": [],
        "train_args": [],
    },
    "translation": {"beam": 5, "lenpen": 1.0, "average": 0},
}
"""As a folder of results has them."""


def settings(*argv: str) -> Settings:
    return parse(argv).settings


def test_a_finished_folder_goes_on(tmp_path: Path) -> None:
    """Whatever the program's own names are, what is stored of the settings stays as it is."""
    done = tmp_path / "models" / "transformer" / "train.json"
    done.parent.mkdir(parents=True)
    done.touch()
    write_json(tmp_path / "settings.json", STORED)
    store_settings(settings("--precision", "fp32"), tmp_path, prepares=True)
    assert done.exists()
    assert read_json(tmp_path / "settings.json") == STORED


def test_the_text_is_stored_as_what_decides_it(text_folder: Path) -> None:
    stored = settings("--data", str(text_folder)).as_json()["text"]["data"]
    assert stored["folder"] == str(text_folder)
    assert sorted(stored["sha256"]) == sorted(path.name for path in text_folder.iterdir())
    (text_folder / "test.de").write_text("Der Hund schläft.\nEin Mann wartet.\n", encoding="utf-8")  # of the same size
    assert settings("--data", str(text_folder)).as_json()["text"]["data"] != stored
    wmt14 = settings("--wmt14", "every-100th", "--server", "file:///mirror/")
    assert wmt14.as_json()["text"]["data"] == {"wmt14": "every-100th"}
    assert wmt14.text.dataset.server == "file:///mirror"


@pytest.mark.parametrize("result", ["checkpoints/checkpoint_last.pt", "train.json"])
def test_other_settings_in_the_same_folder(tmp_path: Path, result: str) -> None:
    """Neither a training under way nor a finished one without its checkpoints is thrown away."""
    store_settings(settings("--epochs", "3"), tmp_path, prepares=True)
    store_settings(settings("--epochs", "3", "--k", "4"), tmp_path, prepares=True)
    path = tmp_path / "models" / "transformer" / result
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(UserError, match=r"epochs = 3, not 4.*another --out"):
        store_settings(settings("--epochs", "4"), tmp_path, prepares=True)
    assert path.exists()


def test_what_is_exact_is_stored_where_it_is_given(tmp_path: Path) -> None:
    """A folder from before there was the option goes on without it, and none of its models is thrown away."""
    given = settings("--exact-below", "0")
    assert "exact_below" not in settings().as_json()["training"]
    assert given.as_json()["training"]["exact_below"] == 0
    for first, other, said in ((settings(), given, "None, not 0"), (given, settings(), "0, not None")):
        out = tmp_path / said
        out.mkdir()
        store_settings(first, out, prepares=True)
        done = out / "models" / "transformer" / "train.json"
        done.parent.mkdir(parents=True)
        done.touch()
        with pytest.raises(UserError, match=f"exact_below = {said}"):
            store_settings(other, out, prepares=True)
        store_settings(first, out, prepares=True)
        assert done.exists()


def test_prepared_text_is_replaced_by_a_command_that_prepares(tmp_path: Path) -> None:
    """Never by one that only trains or evaluates, a mistyped variable of which would cost hours."""
    store_settings(settings(), tmp_path, prepares=True)
    (tmp_path / "bin").mkdir()
    other = settings("--bpe-merges", "700")
    with pytest.raises(UserError, match=r"bpe_merges = 800, not 700.*prepare\.sh"):
        store_settings(other, tmp_path, prepares=False)
    begun = tmp_path / "models" / "transformer"  # a training that has saved nothing yet
    begun.mkdir(parents=True)
    store_settings(settings("--lr", "1"), tmp_path, prepares=False)
    assert not begun.exists()
    assert (tmp_path / "bin").exists()
    store_settings(other, tmp_path, prepares=True)
    assert not (tmp_path / "bin").exists()


def test_automatic_precision(tmp_path: Path) -> None:
    """Decided at once, so that a folder holds one; models that are there decide it, so that a folder that was trained
    on a GPU can be evaluated, and reported on, without one."""
    out = ["--out", str(tmp_path)]
    assert settings(*out).training.precision == ("fp16" if torch.cuda.is_available() else "fp32")
    assert settings(*out, "--", "--cpu").training.precision == "fp32"
    store_settings(settings(*out, "--precision", "amp"), tmp_path, prepares=True)
    assert settings(*out).training.precision != "amp"
    (tmp_path / "models" / "transformer").mkdir(parents=True)
    (tmp_path / "models" / "transformer" / "train.json").touch()
    assert settings(*out).training.precision == "amp"
    store_settings(settings(*out), tmp_path, prepares=False)


def test_two_runs_in_one_folder(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(UserError, match="Another run"), locked(tmp_path, patience=0):
        pass


def test_limits_of_source_and_target_are_their_own() -> None:
    longest = settings("--", "--max-source-positions", "2048").training.longest
    assert longest == {"--max-source-positions": 2048, "--max-target-positions": 1024}
