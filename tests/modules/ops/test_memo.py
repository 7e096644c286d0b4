import gc
from threading import Thread
from weakref import ref

import torch

from linformer_fairseq.modules.ops.memo import remembered


def test_results_are_those_of_the_same_tensor_and_arguments() -> None:
    calls = []

    @remembered
    def doubled(x: torch.Tensor, more: int = 0) -> torch.Tensor:
        calls.append(more)
        return 2 * x + more

    x = torch.ones(2)
    assert doubled(x) is doubled(x)
    assert torch.equal(doubled(x, 1), torch.full((2,), 3.0))
    assert calls == [0, 1]
    x.add_(1)
    assert torch.equal(doubled(x), torch.full((2,), 4.0))
    assert torch.equal(doubled(x.clone()), doubled(x))
    assert calls == [0, 1, 0, 0]
    with torch.inference_mode():
        assert torch.equal(doubled(torch.ones(2)), torch.full((2,), 2.0))
        doubled(x, 5)
    assert not doubled(x, 5).is_inference()


def test_a_result_is_forgotten_with_its_tensor() -> None:
    double = remembered(lambda x: 2 * x)
    x = torch.ones(2)
    result = ref(double(x))
    assert result() is not None
    del x
    gc.collect()
    assert result() is None


def test_threads_have_results_of_their_own_tensors() -> None:
    double = remembered(lambda x: 2 * x)
    wrong = []

    def work(seed: int) -> None:
        for number in range(2000):
            x = torch.full((1,), float(seed * number))
            if any(double(x).item() != 2 * seed * number for _ in range(2)):
                wrong.append(number)

    threads = [Thread(target=work, args=(seed,)) for seed in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
