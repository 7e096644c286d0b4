"""What is computed once, and when it is computed again."""

import torch

from linformer_fairseq.modules.once import Once


def test_closed_it_computes_every_time() -> None:
    once, x = Once(), torch.ones(2)
    first, second = (once("double", x, lambda y: 2 * y) for _ in range(2))
    assert first is not second
    assert torch.equal(first, second)


def test_open_it_computes_once_for_each_tensor_and_name() -> None:
    once, x = Once(), torch.ones(2)
    with once.open():
        double = once("double", x, lambda y: 2 * y)
        assert once("double", x, lambda y: 5 * y) is double
        assert torch.equal(once("half", x, lambda y: y / 2), torch.full((2,), 0.5))
        # an equal tensor is another one
        assert torch.equal(once("double", x.clone(), lambda y: 5 * y), torch.full((2,), 5.0))


def test_nothing_is_kept_beyond_its_end() -> None:
    once, x = Once(), torch.ones(2)
    with once.open():
        once("double", x, lambda y: 2 * y)
    with once.open():
        assert torch.equal(once("double", x, lambda y: 5 * y), torch.full((2,), 5.0))
    try:
        with once.open():
            once("double", x, lambda y: 2 * y)
            raise RuntimeError
    except RuntimeError:
        assert torch.equal(once("double", x, lambda y: 5 * y), torch.full((2,), 5.0))
