"""Windows and other packages' attention go through the commands: converting, training and translating."""

import shlex
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.models.loading import projection_weights
from tests.fairseq_commands import run, run_module, train, translate, valid_losses, validation_loss
from tests.peers import PEERS, need_peer
from tests.variants import reads_checkpoints, variants

pytestmark = pytest.mark.slow

FLAGS = {
    "window": ["--linformer-window-size", 6, "--linformer-window-ratio", 1.1],
    "nystromformer": ["--linformer-landmarks", 4],
    "performer": ["--linformer-features", 9],
    "longformer": ["--linformer-window-size", 4],
    "reformer": ["--linformer-bucket-size", 4, "--linformer-hashes", 2],
}


@reads_checkpoints
@pytest.mark.parametrize("kind", variants(FLAGS, default=["window", "nystromformer"]))
def test_a_transformer_is_converted_and_tuned(kind: str, trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """Dropout of attention, which not all packages have, is not taken over."""
    need_peer(kind)
    state, dropping = torch.load(trained_transformer, weights_only=True), tmp_path / "dropping.pt"
    state["cfg"]["model"].attention_dropout = 0.1
    torch.save(state, dropping)
    out = tmp_path / "converted.pt"
    said = run_module(
        "linformer_fairseq.convert", dropping, out, "--linformer-projection", kind, *FLAGS[kind], "--texts", 0
    ).ok()
    before, after = (read_checkpoint(path) for path in (trained_transformer, out))
    settings = after["cfg"]["model"]
    assert settings.linformer_projection == kind
    assert settings.linformer_attention == ("encoder" if kind in PEERS else "encoder,cross,decoder")
    assert settings.attention_dropout == (0.0 if kind in ("nystromformer", "performer") else 0.1)
    assert all(torch.equal(after["model"][name], tensor) for name, tensor in before["model"].items())
    assert bool(projection_weights(after["model"])) == (kind in ("nystromformer", "performer"))
    assert len(translate(data, out)) == 30

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
        assert len(translate(data, folder / "checkpoint_best.pt")) == 30


@pytest.mark.parametrize("kind", variants([kind for kind in FLAGS if kind != "window"], default=["performer"]))
def test_training_from_scratch(kind: str, data: Path, tmp_path: Path) -> None:
    """`--linformer-k` means nothing to them, not even one that is too large."""
    need_peer(kind)
    flags = ["--linformer-projection", kind, "--linformer-attention", "encoder", "--linformer-k", 1000]
    losses = valid_losses(train(data, tmp_path, *flags, *FLAGS[kind]).ok())
    assert losses[-1] < losses[0]
    assert len(translate(data, tmp_path / "checkpoint_best.pt")) == 30


@pytest.mark.parametrize("kind", PEERS)
def test_places_that_a_package_does_not_have_are_refused(kind: str, data: Path, tmp_path: Path) -> None:
    result = train(data, tmp_path, "--linformer-projection", kind, "--linformer-attention", "encoder,cross")
    said = f"error: {kind} is for the encoder's self-attention alone: use --linformer-attention encoder"
    assert result.sentence() == said


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
