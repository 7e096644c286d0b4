"""Training and translating in half precision on a GPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands.conftest import ROOT, Result, environment, train_arguments

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


@pytest.mark.parametrize("precision", ["--fp16", "--amp", "--bf16"])
def test_half_precision_training(data: Path, tmp_path: Path, precision: str) -> None:
    arguments = train_arguments(
        data,
        tmp_path,
        *(precision, "--max-epoch", 8, "--lr", "5e-4", "--clip-norm", 1.0),
        arch="linformer_transformer_wmt_en_de",
    )
    output = run_on_gpu("train", *arguments).ok()
    losses = [float(loss) for loss in re.findall(r"valid on 'valid' subset \| loss (\S+)", output)]
    assert len(losses) == 8
    assert losses[-1] < losses[0]
    assert all(loss == loss for loss in losses)
    # a loss scale may be halved a few times at the start, but not go on falling
    scales = [float(scale) for scale in re.findall(r"loss_scale (\S+)", output)]
    assert all(scale >= 1 for scale in scales)
    if precision != "--bf16":  # fairseq takes bf16 for a TPU's type when it translates
        half = ["--fp16"] if precision == "--fp16" else []
        generate = [data / "bin", "--user-dir", "linformer_fairseq", "--path", tmp_path / "checkpoint_best.pt", *half]
        output = run_on_gpu("generate", *generate, "--beam", 4, "--required-batch-size-multiple", 1).ok()
        assert len(re.findall(r"^H-\d+\t", output, re.MULTILINE)) == 30
