"""The safe loader admits what fairseq saves, and refuses code."""

import os
import re
from pathlib import Path

import numpy
import pytest
import torch
from fairseq.logging.meters import AverageMeter

import linformer_fairseq.checkpoints as checkpoints
from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.trained import load_trained
from tests.models.toy import toy_args, toy_model

safe_by_default = pytest.mark.skipif(
    not hasattr(torch.serialization, "get_safe_globals"), reason="this torch has no list of admitted types"
)


class Smuggled:
    """An object that runs a command when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.marker}",)


@safe_by_default
def test_fairseq_checkpoints_load(tmp_path: Path) -> None:
    state = {"cfg": {"model": toy_args()}, "model": toy_model(linformer_k="4").state_dict()}
    torch.save(state, tmp_path / "good.pt")
    assert torch.load(tmp_path / "good.pt", weights_only=True)["cfg"]["model"].linformer_k == "64"


@safe_by_default
@pytest.mark.parametrize("numbers", [[3, 1], [0.5]])
def test_counts_of_bleu_load(tmp_path: Path, numbers: list[float]) -> None:
    """`--eval-bleu` leaves arrays in a checkpoint, without which no training goes on and no model translates."""
    torch.save({"extra_state": {"_bleu_counts": {"sum": numpy.array(numbers)}}}, tmp_path / "good.pt")
    loaded = torch.load(tmp_path / "good.pt", weights_only=True)
    assert loaded["extra_state"]["_bleu_counts"]["sum"].tolist() == numbers


@safe_by_default
def test_loading_a_trained_model_runs_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No code runs even where the user's shell asks torch for the other loader."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    (tmp_path / "dict.en.txt").touch()
    torch.save({"model": {"w": torch.ones(1)}, "extra": Smuggled(tmp_path / "ran")}, tmp_path / "bad.pt")
    with pytest.raises(UserError, match=r"bad\.pt is refused by torch's safe loader"):
        load_trained(tmp_path / "bad.pt", tmp_path)
    assert not (tmp_path / "ran").exists()


@safe_by_default
def test_admits_nothing_else() -> None:
    kinds = [kind[0] if isinstance(kind, tuple) else kind for kind in torch.serialization.get_safe_globals()]
    assert {kind for kind in kinds if not kind.__module__.startswith("torch.")} == set(checkpoints.CHECKPOINT_TYPES)


@safe_by_default
def test_files_of_torch_before_1_6(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are pickles and no archives, and fairseq's then held its meters, whose module had another name."""
    path, meter = tmp_path / "old.pt", AverageMeter()
    meter.update(3.0)
    with monkeypatch.context() as patch:
        patch.setattr(AverageMeter, "__module__", "fairseq.meters")
        state = {"model": {"w": torch.ones(1)}, "extra_state": {"train_meters": {"loss": meter}}}
        torch.save(state, path, _use_new_zipfile_serialization=False)
    assert read_checkpoint(path)["extra_state"]["train_meters"]["loss"].avg == 3
    whole = path.read_bytes()
    for content in (whole[:-1], whole[:20], b"cposix\nsystem\n", b""):
        path.write_bytes(content)
        with pytest.raises(UserError, match=r"old\.pt is not a checkpoint, or is damaged: save or copy it again"):
            read_checkpoint(path)
    state = {**state, "extra": Smuggled(tmp_path / "ran")}
    torch.save(state, path, _use_new_zipfile_serialization=False)
    with pytest.raises(UserError, match=r"it asks for posix\.system, which may run code"):
        read_checkpoint(path)
    assert not (tmp_path / "ran").exists()


def test_nothing_is_loaded_unsafely() -> None:
    root = Path(checkpoints.__file__).parents[1]
    sources = [
        path
        for folder in ("linformer_fairseq", "scripts", "examples", "tests")
        for path in (root / folder).rglob("*.*")
    ]
    texts = {path: path.read_text(encoding="utf-8") for path in sources if path.suffix in {".py", ".sh"}}
    assert len(texts) > 20
    assert not [path for path, text in texts.items() if re.search(r"weights_only\s*=\s*False", text)]
