"""The command averages a training's checkpoints, and fairseq's commands accept the mean."""

from pathlib import Path

import pytest
import torch

from linformer_fairseq.average import average
from tests.fairseq_commands import run_documented, run_module, train, translate, valid_losses, validation_loss
from tests.variants import reads_checkpoints

pytestmark = pytest.mark.slow


@reads_checkpoints
def test_fairseq_takes_the_mean(data: Path, trained: Path, tmp_path: Path) -> None:
    saved = sorted(trained.parent.glob("checkpoint_*_*.pt"), key=lambda path: int(path.stem.split("_")[2]))
    assert len(saved) == 3
    mean, named = tmp_path / "average.pt", tmp_path / "named.pt"
    said = run_documented(
        "flags.md", "linformer_fairseq.average", {}, "--folder", trained.parent, "--last", 3, "--output", mean
    ).ok()
    assert f"The mean of 3 checkpoints is in {mean}." in said
    average(saved, named)
    assert mean.stat().st_size < saved[-1].stat().st_size / 2  # no optimiser, and tied embeddings once
    *models, found, same = (torch.load(path, weights_only=True)["model"] for path in (*saved, mean, named))
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, sum(model[name] for model in models) / 3)
        assert torch.equal(tensor, same[name])

    translate(data, mean)
    nothing = ["--finetune-from-model", mean, "--max-update", 1, "--lr", 0]
    tuned = train(data, tmp_path / "tuned", *nothing).ok()
    assert "loading pretrained model" in tuned
    assert valid_losses(tuned) == [pytest.approx(validation_loss(data, mean), abs=0.002)]


@pytest.mark.skipif(hasattr(torch.serialization, "add_safe_globals"), reason="this torch can average")
def test_old_torch_says_what_it_lacks(trained: Path, tmp_path: Path) -> None:
    sentence = run_module("linformer_fairseq.average", trained, "--output", tmp_path / "average.pt").sentence()
    assert sentence.startswith("error: Averaging needs torch 2.4 or newer")
    assert not list(tmp_path.iterdir())
