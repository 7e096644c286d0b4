"""Times of several contenders, measured in turn."""

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from linformer_fairseq.cli.progress import say

from .memory import peak_bytes_or_none, refusal, release

Key = TypeVar("Key", bound=Hashable)
"""What a contender is known by."""
Contenders = Mapping[Key, Callable[[int], object]]
"""What to time; a call is given its number, from 0 on."""
INPUT_SETS = 3
"""Inputs that the runs take in turn, so that no run finds its own in the processor's caches."""


class Spread(NamedTuple):
    """Median and quartiles of the runs, in seconds."""

    median: float
    lower: float
    upper: float

    def facts(self) -> dict[str, float]:
        """Returns the three as results.json has them."""
        return {f"{name}_seconds": seconds for name, seconds in self._asdict().items()}


@dataclass(frozen=True)
class Timings(Generic[Key]):
    """The times of the contenders that ran; every contender is in one of the two dictionaries."""

    seconds: dict[Key, list[float]]
    """The time of every run."""
    notes: dict[Key, str]
    """Why a contender has no time."""

    @property
    def spreads(self) -> dict[Key, Spread]:
        """The median and the quartiles of each contender."""
        return {name: spread(times) for name, times in self.seconds.items()}


class Measured(NamedTuple):
    """What is known of a contender."""

    time: Spread | None
    peak_bytes: int | None
    note: str
    """Why there is no time."""


def in_milliseconds(time: Spread) -> str:
    return f"{1000 * time.median:,.1f} ms"


def with_peaks(
    timings: Timings[Key],
    calls: Contenders[Key],
    device: torch.device,
    shown: Callable[[Spread], str] = in_milliseconds,
) -> dict[Key, Measured]:
    """Returns time, peak memory and note of every contender, and tells the user the time or the note.

    Args:
        calls: those that ran at least, each of which is called once more for its memory.
    """
    found = {}
    for name, note in timings.notes.items():
        found[name] = Measured(None, None, note)
        say(f"  {name}: {note}")
    for name, own in timings.spreads.items():
        found[name] = Measured(own, peak_bytes_or_none(str(name), partial(calls[name], 0), device), "")
        say(f"  {name}: {shown(own)}")
    return found


def interleaved(
    calls: Contenders[Key], repeats: int, warm_up: int, device: torch.device, time_limit: float = math.inf
) -> Timings[Key]:
    """Times all contenders in turn; the first `warm_up` runs of each do not count."""
    timings = take_turns(calls, warm_up + repeats, device, time_limit)
    return Timings({name: times[warm_up:] for name, times in timings.seconds.items()}, timings.notes)


def take_turns(calls: Contenders[Key], runs: int, device: torch.device, time_limit: float = math.inf) -> Timings[Key]:
    """Times all contenders in turn, run by run, so that whatever else the machine does affects all of them alike.

    A contender drops out once it does not fit into memory, or one of its runs takes longer than `time_limit` seconds.
    """
    seconds: dict[Key, list[float]] = {name: [] for name in calls}
    notes: dict[Key, str] = {}
    for run in range(runs):
        for name, call in calls.items():
            if name in notes:
                continue
            try:
                seconds[name].append(_seconds(call, run, device))
            except (RuntimeError, MemoryError) as error:
                notes[name] = refusal(error)
            else:
                if seconds[name][-1] > time_limit:
                    notes[name] = too_long(time_limit)
                continue
            release(device)  # once the error, and what it refers to, is gone
    return Timings({name: times for name, times in seconds.items() if name not in notes}, notes)


def too_long(time_limit: float) -> str:
    """Returns the note for a contender that exceeded the time limit, at this length or a shorter one."""
    return f"left out: takes longer than {time_limit:g} s"


def spread(seconds: list[float]) -> Spread:
    """Returns the median and the quartiles."""
    if len(seconds) == 1:
        return Spread(*seconds * 3)
    lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return Spread(median, lower, upper)


def _seconds(call: Callable[[int], Any], run: int, device: torch.device) -> float:
    _synchronise(device)
    start = time.perf_counter()
    call(run)
    _synchronise(device)
    return time.perf_counter() - start


def _synchronise(device: torch.device) -> None:
    """Waits for what was started on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
