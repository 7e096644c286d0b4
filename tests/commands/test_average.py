"""The mean of a training's checkpoints, made by the command and taken by fairseq's commands."""

from pathlib import Path

import pytest
import torch

from linformer_fairseq.average import average
from tests.fairseq_commands import (
    PLUGIN,
    Result,
    generate_arguments,
    run,
    run_module,
    train_arguments,
    valid_losses,
)

pytestmark = pytest.mark.slow


def run_average(*arguments: object) -> Result:
    return run_module("linformer_fairseq.average", *arguments)


@pytest.mark.skipif(not hasattr(torch.serialization, "add_safe_globals"), reason="averaging needs torch 2.4")
def test_fairseq_takes_the_mean(data: Path, tmp_path: Path) -> None:
    run("train", *train_arguments(data, tmp_path, "--save-interval-updates", 4, "--max-epoch", 3)).ok()
    saved = sorted(tmp_path.glob("checkpoint_*_*.pt"), key=lambda path: int(path.stem.split("_")[2]))[-3:]
    mean = tmp_path / "mean" / "average.pt"
    mean.parent.mkdir()
    said = run_average("--folder", tmp_path, "--last", 3, "--output", mean).ok()
    assert f"The mean of 3 checkpoints is in {mean}." in said
    named = tmp_path / "named.pt"
    average(saved, named)
    assert mean.stat().st_size < saved[-1].stat().st_size / 2  # no optimiser, and tied embeddings once

    models = [torch.load(path, weights_only=True)["model"] for path in (*saved, mean, named)]
    assert len(models) == 5
    for name, tensor in models[3].items():
        torch.testing.assert_close(tensor, sum(model[name] for model in models[:3]) / 3)
        assert torch.equal(tensor, models[4][name])

    hypotheses = [
        line for line in run("generate", *generate_arguments(data, mean)).ok().split("\n") if line[:2] == "H-"
    ]
    assert len(hypotheses) == 30
    common = [data / "bin", *PLUGIN, "--task", "translation", "--max-tokens", 400, "--cpu"]
    assert "ppl" in run("validate", *common, "--path", mean, "--required-batch-size-multiple", 1).ok()
    more = ["--finetune-from-model", mean, "--max-update", 1, "--lr", 0]
    tuned = run("train", *train_arguments(data, tmp_path / "tuned", *more)).ok()
    assert "loading pretrained model" in tuned
    assert len(valid_losses(tuned)) == 1


@pytest.mark.skipif(hasattr(torch.serialization, "add_safe_globals"), reason="this torch can average")
def test_old_torch_says_what_it_lacks(trained: Path, tmp_path: Path) -> None:
    sentence = run_average(trained, "--output", tmp_path / "average.pt").sentence()
    assert sentence.startswith("error: Averaging needs torch 2.4 or newer")
    assert not list(tmp_path.iterdir())
