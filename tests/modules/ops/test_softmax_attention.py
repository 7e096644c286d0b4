"""Scores and their softmax, in half precision too."""

import pytest
import torch

from linformer_fairseq.modules.ops.softmax_attention import scores, softmax_attention


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_scores_may_exceed_half_precision(dtype: torch.dtype, autocast: bool) -> None:
    query, key = (1000 * torch.ones(1, size, 4, dtype=dtype) for size in (2, 3))
    with torch.autocast("cpu", dtype, enabled=autocast):
        torch.testing.assert_close(scores(query, key), torch.full((1, 2, 3), 2.0 * 1000.0**2))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_scores_beyond_half_precision(dtype: torch.dtype) -> None:
    query, keys, values = 300 * torch.randn(2, 2, 3, 4).to(dtype), *torch.randn(2, 2, 2, 5, 4).to(dtype)
    keys = 300 * keys
    found = scores(query.double(), keys.double())
    assert found.abs().max() > 65504
    for autocast in (False, True):
        with torch.autocast("cpu", dtype, enabled=autocast):
            out, probabilities = softmax_attention(query, keys, values, None, 0.0, need_weights=True)
        assert out.isfinite().all()
        torch.testing.assert_close(probabilities.double(), found.softmax(-1), rtol=0, atol=1e-3)
