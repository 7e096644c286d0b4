"""The precisions of training."""

import pytest
import torch

from linformer_fairseq.recipe.precision import PRECISIONS, precision_of_steps, prepare_steps


@pytest.mark.parametrize("precision", PRECISIONS)
def test_steps_on_a_cpu_are_measured_in_32_bits(precision: str) -> None:
    rounded = precision == "fast-fp32"
    before = torch.get_float32_matmul_precision()
    try:
        assert prepare_steps(precision, cpu=False) == {"bf16": torch.bfloat16}.get(
            precision, torch.float16 if precision in ("fp16", "amp") else torch.float32
        )
        assert (torch.get_float32_matmul_precision() == "high") == rounded
    finally:
        torch.set_float32_matmul_precision(before)
    assert precision_of_steps(precision, cpu=True) == ("fast-fp32" if rounded else "fp32")
    assert precision_of_steps(precision, cpu=False) == precision
