"""The masked products equal their definition and pass torch's gradient check."""

import pytest
import torch
from torch import Tensor

from linformer_fairseq.modules.ops.causal_products import (
    _cumsums,
    _looped_sums,
    _running_sums,
    slots_to_tokens,
    tokens_to_slots,
)


def whole(x: Tensor) -> Tensor:
    """Joins the chunks, (m, X, c, s) to (X, T, s)."""
    return x.transpose(0, 1).flatten(1, 2)


@pytest.mark.parametrize(("chunks", "started"), [(1, False), (1, True), (3, False), (3, True)])
def test_products(chunks: int, started: bool) -> None:
    """The tensors are chunks of three tokens for four heads and sentences, with two features and five slots."""
    shapes = [(chunks, 4, 3, 2), (chunks, 4, 3, 5), (chunks, 4, 2, 3), (chunks, 3, 5), (4, 2, 5)]
    x, y, tokens, matrix, start = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes)
    t, m = whole(tokens.transpose(2, 3)), matrix.flatten(0, 1)
    start = start if started else None
    before = (whole(x) @ start, whole(y) @ start.transpose(1, 2)) if started else (0, 0)

    out, last = tokens_to_slots(x, tokens, matrix, start)
    torch.testing.assert_close(whole(out), (whole(x) @ t.transpose(1, 2)).tril() @ m + before[0])
    out, also_last = slots_to_tokens(y, tokens, matrix, start)
    torch.testing.assert_close(whole(out), (whole(y) @ m.t()).tril() @ t + before[1])
    if started:
        torch.testing.assert_close(last, start + t.transpose(1, 2) @ m)
        assert torch.equal(also_last, last)
    else:
        assert last is also_last is None
    kept = slice(2 if started else 1)
    assert torch.autograd.gradcheck(lambda *args: tokens_to_slots(*args)[kept], (x, tokens, matrix, start))
    assert torch.autograd.gradcheck(lambda *args: slots_to_tokens(*args)[kept], (y, tokens, matrix, start))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_running_sums(dtype: torch.dtype) -> None:
    """The sums of a thousand positive rows are accurate, although half precision cannot add them up."""
    x = torch.rand(1000, 2, 3).to(dtype)
    tolerance = {"rtol": max(1e-5, 2 * torch.finfo(dtype).eps), "atol": 1e-5}
    for reverse in (False, True):
        for start in (None, torch.ones(2, 3)):
            sums, last = _running_sums(x.clone(), start, reverse)
            ordered = x.flip(0) if reverse else x
            expected = torch.cat([torch.zeros(1, 2, 3), ordered.float().cumsum(0)]) + (start is not None)
            assert sums.dtype == dtype
            wanted = expected[:-1].flip(0) if reverse else expected[:-1]
            torch.testing.assert_close(sums, wanted.to(dtype), **tolerance)
            torch.testing.assert_close(last, expected[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_sums_of_a_gpu_are_those_of_the_loop(dtype: torch.dtype) -> None:
    x = torch.randn(6, 2, 3).to(dtype)
    start = torch.randn(2, 3, dtype=torch.promote_types(dtype, torch.float32))
    for reverse in (False, True):
        both = _cumsums(x, start, reverse), _looped_sums(x.clone(), start, reverse)
        for sums, expected in zip(*both, strict=True):
            torch.testing.assert_close(sums, expected)
        for _, last in both:  # it becomes the state of decoding, and keeps no others in memory
            assert last.untyped_storage().nbytes() == last.numel() * last.element_size()
