"""The precisions of training."""

import pytest
import torch

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.precision import PRECISIONS, precision_arguments, precision_of_steps, type_of_steps


@pytest.mark.parametrize("precision", PRECISIONS)
def test_steps_on_a_cpu_are_measured_in_32_bits(precision: str) -> None:
    types = {"fp16": torch.float16, "amp": torch.float16, "bf16": torch.bfloat16}
    assert type_of_steps(precision, cpu=False) == types.get(precision, torch.float32)
    assert precision_of_steps(precision, cpu=False) == precision
    assert type_of_steps(precision, cpu=True) == torch.float32
    assert precision_of_steps(precision, cpu=True) == "fp32"


def test_half_precision_needs_a_gpu() -> None:
    assert precision_arguments("amp", cpu=False) == ["--amp"]
    assert precision_arguments("bf16", cpu=True) == []
    with pytest.raises(UserError, match="--precision fp16 needs a GPU"):
        precision_arguments("fp16", cpu=True)
