"""Peak memory against allocations of known size, and the limit that keeps a benchmark alive."""

from pathlib import Path

import pytest
import torch

from linformer_fairseq.benchmark import memory
from linformer_fairseq.benchmark.memory import limited_memory, peak_bytes, peak_bytes_or_none, refusal, saved_bytes

CPU = torch.device("cpu")
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
    peak = peak_bytes(lambda: torch.autograd.grad(x.exp(), x, torch.ones(1).expand(MEGABYTE)), CPU)
    assert 2 * x.nbytes <= peak < 2 * x.nbytes + MEGABYTE  # the exponential, and the gradient


def test_what_is_saved_for_backward_counts_once_and_without_what_is_there_anyway() -> None:
    x, weight = torch.ones(MEGABYTE, requires_grad=True), torch.ones(MEGABYTE, requires_grad=True)

    def forward() -> torch.Tensor:
        out = (x * weight).exp()  # keeps x and the weight, and its own output
        return out * out.view(2, -1).flatten()  # keeps the same output twice

    assert saved_bytes(forward, [x, weight]) == x.nbytes
    assert saved_bytes(forward, [x]) == 2 * x.nbytes
    with torch.no_grad():
        assert saved_bytes(forward, [x, weight]) == 0


def test_peak_that_cannot_be_listed_is_unknown(capsys: pytest.CaptureFixture) -> None:
    def fails() -> None:
        raise MemoryError

    assert peak_bytes_or_none("ours", lambda: take_eight_then_four(CPU), CPU) == 8 * MEGABYTE
    assert not capsys.readouterr().out
    assert peak_bytes_or_none("ours", fails, CPU) is None
    assert capsys.readouterr().out == "  ours: no peak memory, did not fit into memory\n"


def test_memory_is_limited_to_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    kilobytes = memory.kilobytes("/proc/meminfo", "MemAvailable")
    if kilobytes is None:
        pytest.skip("not on Linux")
    monkeypatch.setattr(memory, "RESERVE", 0.5)  # far from what other processes take or give back meanwhile

    def take(share: float) -> None:
        torch.empty(int(1024 * share * kilobytes), dtype=torch.uint8)  # which Linux grants, as nothing is written

    with limited_memory(CPU):
        take(0.2)
        with pytest.raises(RuntimeError) as caught:
            take(0.8)
        assert refusal(caught.value) == "did not fit into memory"
    take(0.8)
    with limited_memory(torch.device("cuda")):
        take(0.8)


def test_a_container_may_have_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CONTAINERS", tmp_path)
    for text, limits in (("max\n", []), ("1000\n", [900])):
        (tmp_path / "memory.max").write_text(text)
        assert memory._container_limits() == limits


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


def test_other_errors_are_raised_again() -> None:
    with pytest.raises(RuntimeError, match="shapes"):
        refusal(RuntimeError("shapes do not match"))
