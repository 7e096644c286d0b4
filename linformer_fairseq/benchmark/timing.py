"""Times of several contenders, measured side by side."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from .memory import refusal

Key = TypeVar("Key", bound=Hashable)
"""What a contender is known by."""
Contenders = Mapping[Key, Callable[[int], object]]
"""What to time; a call is told its number, from 0 on."""


class Spread(NamedTuple):
    """Median and quartiles of the runs, in seconds."""

    median: float
    lower: float
    upper: float

    def facts(self) -> dict[str, float]:
        """As results.json has it."""
        return {f"{name}_seconds": seconds for name, seconds in self._asdict().items()}


@dataclass(frozen=True)
class Timings(Generic[Key]):
    """Every contender stands in one of the two."""

    spreads: dict[Key, Spread]
    notes: dict[Key, str]
    """Why a contender could not run."""


@dataclass(frozen=True)
class Turns(Generic[Key]):
    """As `Timings`, run by run."""

    seconds: dict[Key, list[float]]
    notes: dict[Key, str]


def interleaved(calls: Contenders[Key], repeats: int, warm_up: int, device: torch.device) -> Timings[Key]:
    """Times all contenders in turn, of which the first `warm_up` runs do not count."""
    turns = take_turns(calls, warm_up + repeats, device)
    return Timings({name: spread(times[warm_up:]) for name, times in turns.seconds.items()}, turns.notes)


def take_turns(calls: Contenders[Key], runs: int, device: torch.device) -> Turns[Key]:
    """Times all contenders in turn, run by run, so that whatever else the machine does falls on them alike.

    A contender whose tensors do not fit into memory drops out.
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
    return Turns({name: times for name, times in seconds.items() if name not in notes}, notes)


def spread(seconds: list[float]) -> Spread:
    if len(seconds) == 1:
        return Spread(*seconds * 3)
    lower, median, upper = statistics.quantiles(seconds, n=4, method="inclusive")
    return Spread(median, lower, upper)


def _seconds(call: Callable[[int], Any], run: int, device: torch.device) -> float:
    synchronise(device)
    start = time.perf_counter()
    call(run)
    synchronise(device)
    return time.perf_counter() - start


def synchronise(device: torch.device) -> None:
    """Wait for what was started on a GPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
