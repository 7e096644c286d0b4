"""Counts the memory that a computation holds."""

from collections.abc import Callable

from torch.profiler import ProfilerActivity, profile


def peak_bytes(call: Callable[[], object]) -> int:
    """Returns the most bytes that `call` holds at a time on the CPU, beyond those in use before it."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorder:
        call()
    # newer torch counts in nanoseconds, older in microseconds
    events = [
        (event.start_ns() if hasattr(event, "start_ns") else event.start_us(), event.nbytes())
        for event in recorder.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    held = peak = 0
    for _, size in sorted(events, key=lambda event: event[0]):
        held += size
        peak = max(peak, held)
    return peak
