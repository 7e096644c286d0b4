"""Peak memory against allocations of known size."""

import pytest
import torch

from linformer_fairseq.benchmark.memory import free_bytes, peak_bytes, peak_bytes_if_listed, refusal

MEGABYTE = 2**20


def take_eight_then_four(device: torch.device) -> None:
    first = torch.empty(8 * MEGABYTE, dtype=torch.uint8, device=device)
    del first
    torch.empty(4 * MEGABYTE, dtype=torch.uint8, device=device)


def take_eight_and_four(device: torch.device) -> list[torch.Tensor]:
    return [torch.empty(size * MEGABYTE, dtype=torch.uint8, device=device) for size in (8, 4)]


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize(("call", "megabytes"), [(take_eight_then_four, 8), (take_eight_and_four, 12)])
def test_peak(device: str, call: object, megabytes: int) -> None:
    device = torch.device(device)
    kept = torch.empty(MEGABYTE, device=device)  # does not count
    assert peak_bytes(lambda: call(device), device) == megabytes * MEGABYTE
    del kept


def test_peak_counts_what_backward_takes() -> None:
    x = torch.ones(MEGABYTE, requires_grad=True)
    peak = peak_bytes(lambda: torch.autograd.grad(x.exp(), x, torch.ones(1).expand(MEGABYTE)), torch.device("cpu"))
    assert 2 * x.nbytes <= peak < 2 * x.nbytes + MEGABYTE  # the exponential, and the gradient


def test_peak_that_cannot_be_listed_is_unknown(capsys: pytest.CaptureFixture) -> None:
    def fails() -> None:
        raise MemoryError

    device = torch.device("cpu")
    assert peak_bytes_if_listed("ours", lambda: take_eight_then_four(device), device) == 8 * MEGABYTE
    assert not capsys.readouterr().out
    assert peak_bytes_if_listed("ours", fails, device) is None
    assert capsys.readouterr().out == "  ours: no peak memory, did not fit into memory\n"


def test_free_memory_is_told_or_unknown() -> None:
    free = free_bytes(torch.device("cpu"))
    assert free is None or free > MEGABYTE


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:83] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_failed_allocation_is_a_note(error: Exception) -> None:
    assert refusal(error) == "did not fit into memory"


def test_real_failed_allocation_is_a_note() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55)
    assert refusal(caught.value) == "did not fit into memory"


def test_other_errors_are_raised_again() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        refusal(RuntimeError("shapes do not match"))
