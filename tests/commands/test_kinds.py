"""Windows, and a convolution beside attention, go through the commands: converting, training and translating."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.models.loading import projection_weights
from tests.fairseq_commands import run, run_module, train, translate, valid_losses, validation_loss
from tests.variants import reads_checkpoints

pytestmark = pytest.mark.slow

WINDOWS = ["--linformer-encoder-projection", "window", "--linformer-decoder-projection", "window"]
WINDOWS += ["--linformer-window-size", 5]


@reads_checkpoints
def test_a_transformer_is_converted_and_tuned(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """It has windows but in cross-attention, which is in two levels as all that the command is not told about."""
    out = tmp_path / "converted.pt"
    said = run_module("linformer_fairseq.convert", trained_transformer, out, *WINDOWS, "--texts", 0).ok()
    before, after = (read_checkpoint(path) for path in (trained_transformer, out))
    kinds = ("two-level", "window", None, "window")
    assert kinds_of(after) == kinds
    assert all(torch.equal(after["model"][name], tensor) for name, tensor in before["model"].items())
    assert not projection_weights(after["model"])
    told = shlex.split(said.splitlines()[-1])[1:]
    start = told.index("--finetune-from-model")
    told[start : start + 2] = []
    converted = validation_loss(data, out)
    for start_from in (
        ["--finetune-from-model", out],
        ["--restore-file", out, "--reset-optimizer", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler"],
    ):
        folder = tmp_path / start_from[0].strip("-")
        losses = valid_losses(run("train", *told, *start_from, "--max-epoch", 3, "--save-dir", folder).ok())
        assert losses[-1] < converted
        tuned = folder / "checkpoint_best.pt"
        assert kinds_of(read_checkpoint(tuned)) == kinds
        assert len(translate(data, tuned)) == 30


def kinds_of(state: dict[str, Any]) -> tuple[str | None, ...]:
    """Returns the kinds that a checkpoint has recorded."""
    names = (f"linformer_{place}projection" for place in ("", "encoder_", "cross_", "decoder_"))
    return tuple(getattr(state["cfg"]["model"], name) for name in names)


@reads_checkpoints
def test_a_convolution_is_trained_beside_full_attention(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """Converted, the model is the Transformer, as its kernels are 0, and two levels attend to short texts in full."""
    out, flags = tmp_path / "converted.pt", ["--linformer-projection", "two-level", "--linformer-value-convolution", 5]
    run_module("linformer_fairseq.convert", trained_transformer, out, *flags, "--texts", 0).ok()
    before = validation_loss(data, out)
    assert before == pytest.approx(validation_loss(data, trained_transformer), abs=1e-3)
    losses = valid_losses(train(data, tmp_path, *flags, "--finetune-from-model", out, "--max-epoch", 3).ok())
    assert losses[-1] < before
    kernels = projection_weights(read_checkpoint(tmp_path / "checkpoint_best.pt")["model"])
    assert kernels
    assert all(weight.any() for weight in kernels.values())
    assert len(translate(data, tmp_path / "checkpoint_best.pt")) == 30
