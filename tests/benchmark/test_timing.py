"""The order of the runs, and what becomes of their times; no time itself is tested."""

import pytest
import torch

from linformer_fairseq.benchmark import timing
from linformer_fairseq.benchmark.timing import Spread, Timings, interleaved, spread, take_turns, too_long

CPU = torch.device("cpu")


@pytest.fixture
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run takes as many seconds as its call says."""
    monkeypatch.setattr(timing, "_seconds", lambda call, run, device: float(call(run)))


def test_contenders_take_turns() -> None:
    order = []
    calls = {name: lambda run, name=name: order.append((name, run)) for name in "ab"}
    timings = interleaved(calls, repeats=2, warm_up=1, device=CPU)
    assert order == [("a", 0), ("b", 0), ("a", 1), ("b", 1), ("a", 2), ("b", 2)]
    assert list(timings.spreads) == ["a", "b"]
    assert not timings.notes


@pytest.mark.usefixtures("_clock")
def test_first_runs_do_not_count() -> None:
    calls = {"a": lambda run: run}
    assert take_turns(calls, 3, CPU) == Timings({"a": [0.0, 1.0, 2.0]}, {})
    assert interleaved(calls, repeats=3, warm_up=2, device=CPU).spreads == {"a": spread([2.0, 3.0, 4.0])}


@pytest.mark.usefixtures("_clock")
def test_contender_whose_run_takes_too_long_drops_out() -> None:
    order = []

    def call(run: int) -> int:
        order.append(run)
        return run

    timings = take_turns({"slower": call, "quick": lambda run: 1}, 5, CPU, time_limit=1.5)
    assert order == [0, 1, 2]
    assert timings.seconds == {"quick": [1.0] * 5}
    assert timings.notes == {"slower": "left out: takes longer than 1.5 s"} == {"slower": too_long(1.5)}


def test_contender_that_does_not_fit_drops_out() -> None:
    def fails(run: int) -> None:
        calls.append(run)
        raise MemoryError

    calls: list[int] = []
    timings = interleaved({"large": fails, "small": lambda run: None}, repeats=3, warm_up=0, device=CPU)
    assert calls == [0]
    assert list(timings.spreads) == ["small"]
    assert timings.notes == {"large": "did not fit into memory"}


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [([2.0], Spread(2, 2, 2)), ([3.0, 1.0], Spread(2, 1.5, 2.5)), ([5.0, 1.0, 2.0, 4.0, 3.0], Spread(3, 2, 4))],
)
def test_spread(seconds: list[float], expected: Spread) -> None:
    assert spread(seconds) == expected
