import pytest
import torch

from linformer_fairseq.modules.ops.precision import at_least_float32, softmax


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened(dtype: torch.dtype) -> None:
    assert at_least_float32(dtype) is torch.float32
    x = torch.randn(3, 5).to(dtype)
    assert torch.equal(softmax(x), x.float().softmax(-1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_wide_stays(dtype: torch.dtype) -> None:
    assert at_least_float32(dtype) is dtype
    x = torch.randn(3, 5, dtype=dtype)
    assert torch.equal(softmax(x), x.softmax(-1))
