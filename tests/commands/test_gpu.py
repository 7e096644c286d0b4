"""A model trains and translates in half precision on a GPU."""

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fairseq_commands import (
    ROOT,
    TWO_LEVELS,
    Result,
    environment,
    generate_arguments,
    hydra_arguments,
    hypotheses,
    train_arguments,
    valid_losses,
)

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def run_on_gpu(command: str, *arguments: object) -> Result:
    visible = {"CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0")}
    done = subprocess.run(
        [sys.executable, "-m", f"fairseq_cli.{command}", *(str(a) for a in arguments if a != "--cpu")],
        cwd=ROOT,
        env={**environment(), **visible},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Result(done.returncode, done.stdout)


def training(data: Path, save_dir: Path, precision: str) -> Result:
    """Trains the base architecture for eight epochs, in bf16 through hydra, as `--bf16` expects a TPU."""
    arch, places = "linformer_transformer_wmt_en_de", "encoder,cross,decoder"
    if precision == "bf16":
        options = ["common.bf16=true", "optimization.max_epoch=8", "optimization.clip_norm=1", "model.linformer_k=8"]
        options += [f"+model.linformer_attention='{places}'", "model.linformer_projection=two-level"]
        return run_on_gpu("hydra_train", *hydra_arguments(data, save_dir, *options, arch=arch))
    options = [f"--{precision}", "--optimizer", "fused_adam", "--max-epoch", 8, "--lr", "5e-4", "--clip-norm", 1.0]
    options += ["--linformer-attention", places]
    return run_on_gpu("train", *train_arguments(data, save_dir, *options, *TWO_LEVELS, arch=arch))


@pytest.mark.parametrize("precision", ["fp16", "amp", "bf16"])
def test_half_precision(data: Path, tmp_path: Path, precision: str) -> None:
    output = training(data, tmp_path, precision).ok()
    losses = valid_losses(output)
    assert len(losses) == 8
    assert all(math.isfinite(loss) for loss in losses)
    assert losses[-1] < losses[0]
    scales = [float(scale) for scale in re.findall(r"loss_scale (\S+)", output)]
    assert bool(scales) == (precision != "bf16")
    # it may be halved a few times at the start, but not go on falling
    assert all(scale >= 1 for scale in scales)
    arguments = generate_arguments(data, tmp_path / "checkpoint_best.pt", "--fp16")
    assert len(hypotheses(run_on_gpu("generate", *arguments).ok())) == 30
