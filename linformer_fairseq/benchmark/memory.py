"""Bytes: what a call takes at its peak, how much there is, and what an allocation that failed says."""

import gc
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from linformer_fairseq.cli.progress import say

RESERVE = 0.1
"""The share of the free memory that the measurements must leave to everything else."""
CONTAINERS = Path("/sys/fs/cgroup")
CONTAINER_LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""The files there in which Linux shows a container its limit (cgroup version 2, version 1)."""


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """Returns the most bytes that `call` holds at a time, beyond those in use before it.

    On a GPU the allocator counts them; elsewhere torch's profiler lists every allocation, those of its kernels too.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorder:
        call()
    held = peak = 0
    for _, size in sorted(_memory_events(recorder), key=lambda event: event[0]):
        held += size
        peak = max(peak, held)
    return peak


def peak_bytes_or_none(name: str, call: Callable[[], object], device: torch.device) -> int | None:
    """Returns `peak_bytes` of a call, or None and prints why, where recording its allocations runs out of memory."""
    try:
        return peak_bytes(call, device)
    except (RuntimeError, MemoryError) as error:
        say(f"  {name}: no peak memory, {refusal(error)}")
        return None


def saved_bytes(call: Callable[[], object], own: Iterable[Tensor]) -> int:
    """Returns the bytes that the forward passes within `call` keep for their backward, each memory once.

    Args:
        own: tensors that are there anyway, inputs and parameters, whose memory does not count.
    """
    there = {x.untyped_storage().data_ptr() for x in own}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        kept[storage.data_ptr()] = storage  # which lives on, so that no other memory gets its address
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        call()
    return sum(storage.nbytes() for address, storage in kept.items() if address not in there)


def _memory_events(recorder: profile) -> list[tuple[int, int]]:
    """Returns when memory was taken (> 0) or given back (< 0), and how many bytes."""
    events = recorder.profiler.kineto_results.events()
    return [
        # newer torch counts in nanoseconds, older in microseconds
        (event.start_ns() if hasattr(event, "start_ns") else event.start_us(), event.nbytes())
        for event in events
        if event.name() == "[memory]"
    ]


@contextmanager
def limited_memory(device: torch.device) -> Iterator[None]:
    """Limits this process to the memory that is free on the machine; an allocation beyond it raises an error.

    Without a limit Linux would grant the allocation and kill the process once it fills it, and with it all contenders.
    A GPU needs none, as its allocator refuses what does not fit; systems other than Linux tell no numbers to go by.
    """
    held, free = kilobytes("/proc/self/status", "VmData"), kilobytes("/proc/meminfo", "MemAvailable")
    if device.type == "cuda" or held is None or free is None:
        yield
        return
    import resource  # there is none on Windows

    limits = [1024 * (held + int((1 - RESERVE) * free)), *_container_limits()]
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limits += [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_DATA, (min(limits), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def kilobytes(path: str, name: str) -> int | None:
    """Returns a number from one of Linux's lists, or None where there is no such list."""
    if sys.platform != "linux" or not Path(path).exists():
        return None
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(path).read_text(encoding="utf-8", errors="replace"), re.MULTILINE)
    return int(found[1]) if found else None


def _container_limits() -> list[int]:
    """Returns the bytes that the container may use, less the reserve, if it has a limit."""
    files = [CONTAINERS / name for name in CONTAINER_LIMITS]
    texts = [file.read_text(encoding="ascii").strip() for file in files if file.exists()]
    return [int((1 - RESERVE) * int(text)) for text in texts if text.isdecimal()]


def release(device: torch.device) -> None:
    """Gives back what is no longer in use, before the next measurement."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def refusal(error: RuntimeError | MemoryError) -> str:
    """Returns why a contender drops out of a measurement; raises errors again that say something else."""
    text = str(error)
    memory = ("out of memory", "not enough memory", "can't allocate memory")
    if isinstance(error, MemoryError) or any(words in text for words in memory):
        return "did not fit into memory"
    if "not implemented for" in text:
        return "torch does not compute it in this type"
    raise error
