"""The masked products against their definition, and torch's own gradient check."""

import pytest
import torch
from torch import Tensor

from linformer_fairseq.modules.causal_products import SlotsToTokens, TokensToSlots, _running_sums


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

    out, last = TokensToSlots.apply(x, tokens, matrix, start)
    before = 0 if start is None else whole(x) @ start
    torch.testing.assert_close(whole(out), (whole(x) @ t.transpose(1, 2)).tril() @ m + before)
    out, also_last = SlotsToTokens.apply(y, matrix, tokens, start)
    before = 0 if start is None else whole(y) @ start.transpose(1, 2)
    torch.testing.assert_close(whole(out), (whole(y) @ m.transpose(1, 2)).tril() @ t + before)
    if started:
        torch.testing.assert_close(last, start + t.transpose(1, 2) @ m)
        assert torch.equal(also_last, last)
    else:
        assert last is also_last is None
    kept = slice(2 if started else 1)
    assert torch.autograd.gradcheck(lambda *args: TokensToSlots.apply(*args)[kept], (x, tokens, matrix, start))
    assert torch.autograd.gradcheck(lambda *args: SlotsToTokens.apply(*args)[kept], (y, matrix, tokens, start))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums(dtype: torch.dtype, reverse: bool) -> None:
    x = torch.randn(6, 2, 3).to(dtype)
    sums, last = _running_sums(x, torch.ones(2, 3), reverse)
    ordered = x.flip(0) if reverse else x
    expected = 1 + torch.cat([torch.zeros(1, 2, 3), ordered.float().cumsum(0)])
    torch.testing.assert_close(sums, (expected[:-1].flip(0) if reverse else expected[:-1]).to(dtype))
    torch.testing.assert_close(last, expected[-1])
    elsewhere, _ = _running_sums(
        x.to("meta"), None, reverse
    )  # what a GPU does instead of a loop has no other test here
    assert (elsewhere.shape, elsewhere.dtype) == (x.shape, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("reverse", [False, True])
def test_running_sums_on_a_gpu(reverse: bool) -> None:
    x, start = torch.randn(6, 2, 3), torch.randn(2, 3)
    for found, expected in zip(
        _running_sums(x.cuda(), start.cuda(), reverse), _running_sums(x, start, reverse), strict=True
    ):
        torch.testing.assert_close(found.cpu(), expected)
