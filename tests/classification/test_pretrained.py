"""Which pretrained models are fine-tuned."""

import shutil
from pathlib import Path

import pytest

from linformer_fairseq.classification.pretrained import find_pretrained
from linformer_fairseq.cli.errors import UserError
from tests.classification.made import pretend, pretraining

ARMS = ("--arms", "transformer,linformer,performer")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models of two lengths, Linformer with two k and two sharings, some with two seeds."""
    more = ("--lengths", "32,64", "--ks", "4,8", "--sharings", "headwise,layerwise", "--seeds", "2,1")
    return pretend(pretraining(tmp_path, tmp_path / "pretrained", *ARMS, *more))


def slugs(folder: Path, *arms: str, length: int | None = None, k: int | None = None) -> list[str]:
    found = find_pretrained(folder, arms, length, k)
    return [f"{model.slug} {model.seed}" for models in found.models.values() for model in models]


def test_all_of_the_shortest_length_with_the_k_of_the_study(folder: Path) -> None:
    expected = ["transformer-n32 1", "transformer-n32 2", "linformer-n32-k8 1", "linformer-n32-k8 2", "performer-n32 1"]
    assert slugs(folder) == expected
    found = find_pretrained(folder, [], None, None)
    assert (found.length, found.k) == (32, 8)
    assert found.settings == pretraining(folder, folder).settings


def test_those_that_are_asked_for(folder: Path) -> None:
    assert slugs(folder, "linformer", length=64, k=4) == ["linformer-n64-k4 1"]
    assert slugs(folder, "linformer", "transformer", length=64) == ["transformer-n64 1", "linformer-n64-k8 1"]


def test_linformer_with_another_k_or_sharing(folder: Path) -> None:
    found = find_pretrained(folder, ["linformer"], None, None, [8, 4], ["layerwise", "headwise"])
    assert {name: (models[0].slug, found.label(name)) for name, models in found.models.items()} == {
        "linformer": ("linformer-n32-k8", "Linformer"),
        "linformer-k4": ("linformer-n32-k4", "Linformer, k = 4"),
        "linformer-layerwise": ("linformer-n32-k8-layerwise", "Linformer, layerwise"),
    }
    for ks, sharings, name in (([16], [], "linformer-k16"), ([], ["none"], "linformer-none")):
        with pytest.raises(UserError, match=f"no finished model {name} of 32 tokens: change --ks or --sharings"):
            find_pretrained(folder, [], None, None, ks, sharings)


def test_what_is_not_finished_is_not_there(folder: Path) -> None:
    (folder / "runs" / "linformer-n32-k8" / "seed-1" / "train.json").unlink()
    shutil.rmtree(folder / "runs" / "performer-n32")
    assert slugs(folder) == ["transformer-n32 1", "transformer-n32 2", "linformer-n32-k8 2"]


def test_the_pretraining_with_the_same_seed_or_else_the_first(folder: Path) -> None:
    found = find_pretrained(folder, [], None, None)
    assert [found.start("transformer", seed).seed for seed in (1, 2, 3)] == [1, 2, 1]
    assert [found.start("performer", seed).seed for seed in (1, 2)] == [1, 1]


def test_refusals(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no model of 128 tokens: choose --length from 32, 64, or pretrain one"):
        slugs(folder, length=128)
    with pytest.raises(
        UserError, match="no finished model performer of 64 tokens with k = 8: choose --arms from transf"
    ):
        slugs(folder, "performer", length=64)
    with pytest.raises(
        UserError, match="no finished model linformer of 32 tokens with k = 16: choose --arms from transf"
    ):
        slugs(folder, "linformer", k=16)
    with pytest.raises(UserError, match="is not the folder of a study of masked language models: name the --out of"):
        slugs(tmp_path)
    (folder / "bin" / "dict.txt").unlink()
    with pytest.raises(UserError, match=r"dict\.txt is missing: run the study of masked language models again"):
        slugs(folder)
    shutil.rmtree(folder / "runs")
    with pytest.raises(UserError, match="has no finished model: run the study of masked language models first"):
        slugs(folder)


def test_with_another_k_there_may_be_none(tmp_path: Path) -> None:
    folder = pretend(pretraining(tmp_path, tmp_path / "pretrained", "--arms", "linformer"))
    with pytest.raises(UserError, match="no finished model of 32 tokens with k = 16: choose another --k, or pretrain"):
        slugs(folder, k=16)
