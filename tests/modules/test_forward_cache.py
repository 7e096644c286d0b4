"""An open cache computes each value once, and a closed one every time."""

import torch

from linformer_fairseq.modules.forward_cache import ForwardCache


def test_closed_it_computes_every_time() -> None:
    cache, x = ForwardCache(), torch.ones(2)
    first, second = (cache.get("double", x, lambda y: 2 * y) for _ in range(2))
    assert first is not second
    assert torch.equal(first, second)


def test_open_it_computes_once_for_each_tensor_and_name() -> None:
    cache, x = ForwardCache(), torch.ones(2)
    with cache.open():
        double = cache.get("double", x, lambda y: 2 * y)
        assert cache.get("double", x, lambda y: 5 * y) is double
        assert torch.equal(cache.get("half", x, lambda y: y / 2), torch.full((2,), 0.5))
        # an equal tensor is another one
        assert torch.equal(cache.get("double", x.clone(), lambda y: 5 * y), torch.full((2,), 5.0))


def test_nothing_is_kept_beyond_its_end() -> None:
    cache, x = ForwardCache(), torch.ones(2)
    with cache.open():
        cache.get("double", x, lambda y: 2 * y)
    with cache.open():
        assert torch.equal(cache.get("double", x, lambda y: 5 * y), torch.full((2,), 5.0))
    try:
        with cache.open():
            cache.get("double", x, lambda y: 2 * y)
            raise RuntimeError
    except RuntimeError:
        assert torch.equal(cache.get("double", x, lambda y: 5 * y), torch.full((2,), 5.0))
