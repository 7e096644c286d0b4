"""Bytes: what a call takes at its peak, what is free, and what an allocation that failed says."""

import gc
from collections.abc import Callable
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile

from linformer_fairseq.cli.progress import say


def peak_bytes(call: Callable[[], object], device: torch.device) -> int:
    """The most that `call` holds at a time beyond what there is before it.

    On a GPU the allocator tells; elsewhere every allocation is listed, those within torch's kernels too.
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


def peak_bytes_if_listed(name: str, call: Callable[[], object], device: torch.device) -> int | None:
    """`peak_bytes` of what is known to run, or None, and said so, where there is no memory left for the listing."""
    try:
        return peak_bytes(call, device)
    except (RuntimeError, MemoryError) as error:
        say(f"  {name}: no peak memory, {refusal(error)}")
        return None


def _memory_events(recorder: profile) -> list[tuple[int, int]]:
    """When memory was taken (> 0) or given back (< 0), and how many bytes."""
    events = recorder.profiler.kineto_results.events()
    return [
        # newer torch counts in nanoseconds, older in microseconds
        (event.start_ns() if hasattr(event, "start_ns") else event.start_us(), event.nbytes())
        for event in events
        if event.name() == "[memory]"
    ]


def free_bytes(device: torch.device) -> int | None:
    """What can still be allocated, or None where nothing tells."""
    if device.type == "cuda":
        unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + unused
    info = Path("/proc/meminfo")
    if info.exists():
        for line in info.read_text(encoding="ascii", errors="replace").split("\n"):
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def release(device: torch.device) -> None:
    """Give back what is no longer in use, before the next measurement."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def refusal(error: RuntimeError | MemoryError) -> str:
    """Why a contender drops out of a measurement; errors that say something else are raised again."""
    text = str(error)
    if isinstance(error, MemoryError) or "out of memory" in text or "not enough memory" in text:
        return "did not fit into memory"
    if "can't allocate memory" in text:
        return "did not fit into memory"
    if "not implemented for" in text:
        return "torch does not compute it in this type"
    raise error
