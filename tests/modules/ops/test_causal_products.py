"""The masked products against their definition, and torch's own gradient check."""

from collections.abc import Callable

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


def inputs(chunks: int, groups: int, width: int) -> list[Tensor]:
    """Rows of `width` features, tokens, matrix and start: four heads and sentences, chunks of three tokens."""
    shapes = [(chunks, 4, 3, width), (chunks, 4, 5, 3), (chunks, groups, 3, 6), (4, 5, 6)]
    return [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]


def whole(x: Tensor) -> Tensor:
    """(m, X, c, s) to (X, T, s)."""
    return x.transpose(0, 1).flatten(1, 2)


@pytest.mark.parametrize("chunks", [1, 4])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("started", [False, True])
def test_products(chunks: int, groups: int, started: bool) -> None:
    torch.manual_seed(0)
    x, tokens, matrix, start = inputs(chunks, groups, 5)
    y = torch.randn(chunks, 4, 3, 6, dtype=torch.float64, requires_grad=True)
    t, m = whole(tokens.transpose(2, 3)), whole(matrix.repeat_interleave(4 // groups, 1))
    start = start if started else None

    out, last = tokens_to_slots(x, tokens, matrix, start)
    before = 0 if start is None else whole(x) @ start
    torch.testing.assert_close(whole(out), (whole(x) @ t.transpose(1, 2)).tril() @ m + before)
    out, also_last = slots_to_tokens(y, tokens, matrix, start)
    before = 0 if start is None else whole(y) @ start.transpose(1, 2)
    torch.testing.assert_close(whole(out), (whole(y) @ m.transpose(1, 2)).tril() @ t + before)
    if started:
        torch.testing.assert_close(last, start + t.transpose(1, 2) @ m)
        assert torch.equal(also_last, last)
    else:
        assert last is also_last is None
    kept = slice(2 if started else 1)
    assert torch.autograd.gradcheck(lambda *args: tokens_to_slots(*args)[kept], (x, tokens, matrix, start))
    assert torch.autograd.gradcheck(lambda *args: slots_to_tokens(*args)[kept], (y, tokens, matrix, start))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("started", [False, True])
def test_running_sums(dtype: torch.dtype, reverse: bool, started: bool) -> None:
    """A thousand positive rows, which half precision could not add up."""
    x = torch.rand(1000, 2, 3).to(dtype)
    start = torch.ones(2, 3) if started else None
    sums, last = _running_sums(x.clone(), start, reverse)
    ordered = x.flip(0) if reverse else x
    expected = started + torch.cat([torch.zeros(1, 2, 3), ordered.float().cumsum(0)])
    assert sums.dtype == dtype
    tolerance = {"rtol": max(1e-5, 2 * torch.finfo(dtype).eps), "atol": 1e-5}
    torch.testing.assert_close(sums, (expected[:-1].flip(0) if reverse else expected[:-1]).to(dtype), **tolerance)
    torch.testing.assert_close(last, expected[-1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("sums", [_looped_sums, _cumsums])
def test_the_last_sum_keeps_no_others_in_memory(sums: Callable[..., tuple[Tensor, Tensor]]) -> None:
    """It becomes the state of decoding."""
    _, last = sums(torch.randn(6, 2, 3), torch.zeros(2, 3), False)
    assert last.untyped_storage().nbytes() == last.numel() * last.element_size()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("reverse", [False, True])
def test_the_sums_of_a_gpu_are_those_of_the_loop(dtype: torch.dtype, reverse: bool) -> None:
    x = torch.randn(6, 2, 3).to(dtype)
    start = torch.randn(2, 3, dtype=torch.promote_types(dtype, torch.float32))
    for sums, expected in zip(_cumsums(x, start, reverse), _looped_sums(x.clone(), start, reverse), strict=True):
        torch.testing.assert_close(sums, expected)
