import pytest
import torch

from linformer_fairseq.modules.ops.precision import at_least_float32, scores, softmax


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


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_may_exceed_half_precision(dtype: torch.dtype, autocast: bool) -> None:
    query, key = (1000 * torch.ones(1, size, 4, dtype=dtype) for size in (2, 3))
    with torch.autocast("cpu", dtype, enabled=autocast):
        torch.testing.assert_close(scores(query, key), torch.full((1, 2, 3), 2.0 * 1000.0**2))
