"""Rows of attention modules: what is measured, on what, how often, and what is left out; no time itself is tested."""

import dataclasses
import json
import time
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from linformer_fairseq.benchmark.efficiency import module_grid
from linformer_fairseq.benchmark.efficiency.arguments import SMOKE
from linformer_fairseq.benchmark.efficiency.contenders import CONTENDERS, EAGER, FULL, FUSED, OURS
from linformer_fairseq.benchmark.efficiency.module_grid import (
    BACKWARD,
    FORWARD,
    INPUT_SETS,
    PASSES,
    SLOW_RUNS,
    ModuleRow,
    Shape,
    equal_shapes,
    measure,
    shapes,
)
from linformer_fairseq.benchmark.efficiency.peers import Peer
from linformer_fairseq.benchmark.efficiency.settings import PARTS, EfficiencySettings
from linformer_fairseq.benchmark.efficiency.sizes import Sizes
from linformer_fairseq.benchmark.running import Running
from linformer_fairseq.benchmark.timing import Spread

SHAPE = Shape(length=64, sentences=2, ks=(4, 8))
OWN = tuple(contender for contender in CONTENDERS if contender.name in (EAGER, FUSED, OURS))


@pytest.fixture
def settings() -> EfficiencySettings:
    fields = {field.name for field in dataclasses.fields(EfficiencySettings)}
    tiny = {name: value for name, value in SMOKE.items() if name in fields}
    return EfficiencySettings(
        **{**tiny, "parts": PARTS, "dim": 16, "heads": 2, "time_limit": 60.0, "slow": 60.0, "whole_time_limit": 60.0}
    )


class Recording(nn.Module):
    """Keeps what it is given, and what comes back to it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.inputs: list[Tensor] = []
        self.gradients: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        assert not self.training
        assert x.is_contiguous()
        assert x.requires_grad == torch.is_grad_enabled()
        self.inputs.append(x.detach().clone())
        out = x * self.weight
        if out.requires_grad:
            out.register_hook(lambda gradient: self.gradients.append(gradient.clone()))
        return out


class Calling(nn.Module):
    """Does something before it gives its input back."""

    def __init__(self, action: Callable[[], None]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.action = action

    def forward(self, x: Tensor) -> Tensor:
        self.action()
        return x * self.weight


def peer(name: str, make: Callable[[Sizes], nn.Module], **more: bool) -> Peer:
    return Peer(name, name, more.pop("takes_k", False), make, **more)


def raising(error: Exception) -> Callable[..., None]:
    def fail(*sizes: Sizes) -> None:
        raise error

    return fail


def earlier(contender: str, k: int | None, seconds: float | None, size: int | None = None, **more: object) -> ModuleRow:
    spread = None if seconds is None else Spread(seconds, seconds, seconds)
    row = ModuleRow(contender, k, FORWARD, 32, 1, 3, spread, size, 1, None)
    return dataclasses.replace(row, **more)


def test_shapes_are_batches_of_so_many_tokens_with_the_ks_that_fit(settings: EfficiencySettings) -> None:
    settings = dataclasses.replace(settings, lengths=(4, 8, 12, 16, 64), tokens=32, k=(8, 16))
    assert shapes(settings) == [
        Shape(4, 8, (8,)),  # none fits: the smallest is refused with a note
        Shape(8, 4, (8,)),
        Shape(12, 2, (8,)),
        Shape(16, 2, (8, 16)),
        Shape(64, 1, (8, 16)),
    ]


def test_equal_shapes_have_a_slot_for_every_token(settings: EfficiencySettings) -> None:
    settings = dataclasses.replace(settings, equal_lengths=(3, 8, 64), equal_tokens=32)
    assert equal_shapes(settings) == [Shape(3, 10, (3,)), Shape(8, 4, (8,)), Shape(64, 1, (64,))]


def test_every_contender_has_a_row_for_each_pass_and_k(settings: EfficiencySettings, running: Running) -> None:
    contenders = CONTENDERS[: len(FULL) + 1]
    rows = measure(SHAPE, settings, running, [], contenders)
    keys = [*((contender.name, None) for contender in FULL), (OURS, 4), (OURS, 8)]
    assert [(row.passes, *row.key) for row in rows] == [(passes, *key) for passes in PASSES for key in keys]
    width = settings.dim
    for row in rows:
        assert (row.length, row.sentences, row.runs, row.note) == (64, 2, running.repeats, "")
        assert row.time.median > 0
        assert row.peak_bytes > 0
        assert row.parameters == 4 * width**2 + 4 * width + 2 * 64 * (row.k or 0)
        assert json.loads(json.dumps(row.facts()))["time"]["median_seconds"] == row.time.median


def test_peak_memory_is_that_of_the_pass(settings: EfficiencySettings, running: Running) -> None:
    shape = Shape(128, 1, (4,))
    rows = measure(shape, settings, running, [], OWN)
    peaks = {(row.contender, row.passes): row.peak_bytes for row in rows}
    scores = 4 * settings.heads * 128 * 128
    for passes in PASSES:
        assert peaks[EAGER, passes] >= scores
        assert peaks[OURS, passes] < scores
        assert peaks[EAGER, passes] > 2 * peaks[OURS, passes]
    for row in rows:
        if row.passes == BACKWARD:  # with gradients of the parameters and of the input, and the output
            assert row.peak_bytes >= 4 * (row.parameters + 2 * 128 * settings.dim)
            assert row.peak_bytes > peaks[row.contender, FORWARD]


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (ImportError("No module named 'absent'"), "absent cannot be imported (No module named 'absent'): pip install"),
        (ValueError("odd lengths alone"), "odd lengths alone"),
    ],
)
def test_contender_that_cannot_be_built_has_a_note(
    error: Exception, note: str, settings: EfficiencySettings, running: Running
) -> None:
    contenders = (peer("absent", raising(error), takes_k=True), *OWN[:1])
    rows = measure(SHAPE, settings, running, [], contenders)
    assert len(rows) == 2 * 3
    for row in rows:
        absent = row.contender == "absent"
        assert row.note.startswith(note) if absent else row.note == ""
        assert (row.time is None) == (row.peak_bytes is None) == (row.parameters is None) == absent
        assert (row.runs == 0) == absent
        assert (row.facts()["time"] is None) == absent
    assert [row.k for row in rows if row.contender == "absent"] == [4, 8] * 2


def test_slots_that_are_too_many_have_a_note(settings: EfficiencySettings, running: Running) -> None:
    rows = measure(Shape(6, 1, (8,)), settings, running, [], CONTENDERS)
    for contender in CONTENDERS:
        if contender.takes_k:
            notes = [row.note for row in rows if row.contender == contender.name]
            assert len(notes) == 2
            assert all("k = 8 is larger than the length of 6" in n or "cannot be imported" in n for n in notes)
    assert not any(row.time for row in rows if row.contender == OURS)


def test_broken_contender_is_no_row(settings: EfficiencySettings, running: Running) -> None:
    broken = peer("broken", lambda sizes: Calling(raising(RuntimeError("shapes differ"))))
    with pytest.raises(RuntimeError, match="shapes differ"):
        measure(SHAPE, settings, running, [], (broken,))


def test_contender_that_does_not_fit_into_memory_stops_no_other(settings: EfficiencySettings, running: Running) -> None:
    greedy = peer("greedy", lambda sizes: Calling(raising(MemoryError())))
    for row in measure(SHAPE, settings, running, [], (greedy, *OWN)):
        assert row.note == ("did not fit into memory" if row.contender == "greedy" else "")
        assert (row.time is None) == (row.peak_bytes is None) == (row.runs == 0) == (row.contender == "greedy")


def test_what_would_take_too_long_is_left_out(settings: EfficiencySettings, running: Running) -> None:
    before = [
        earlier(EAGER, None, 20.0),
        earlier(OURS, 4, 20.0, sentences=4),  # 5 s a sentence
        earlier(OURS, 8, 16.0),
        earlier(FUSED, None, None),
        earlier(FUSED, None, 20.0, length=64),  # nothing follows from as long a sentence
    ]
    rows = measure(Shape(64, 1, (4, 8)), settings, running, before, OWN)
    notes = {(*row.key, row.passes): row.note for row in rows if row.note}
    assert notes == {
        (EAGER, None, FORWARD): "left out: a run could take up to 80 s",
        (OURS, 8, FORWARD): "left out: a run could take up to 64 s",
    }
    for row in rows:
        assert (row.time is None) == (row.runs == 0) == (row.peak_bytes is None) == bool(row.note)
        assert row.parameters > 0


def test_limit_is_of_a_batch_however_many_sentences_it_has(settings: EfficiencySettings, running: Running) -> None:
    settings = dataclasses.replace(settings, time_limit=100.0)
    before = [earlier(EAGER, None, 20.0, 1000)]  # one sentence of half the length
    rows = measure(Shape(64, 2, (4,)), settings, running, before, OWN)
    assert {row.note for row in rows if row.contender == EAGER} == {"left out: a run could take up to 160 s", ""}


def test_limit_of_time_is_that_of_the_settings(settings: EfficiencySettings, running: Running) -> None:
    settings = dataclasses.replace(settings, time_limit=1e-12)
    before = measure(Shape(32, 1, (4,)), settings, running, [], OWN)
    assert not any(row.note for row in before), "nothing was known of them"
    rows = measure(Shape(64, 1, (4, 8)), settings, running, before, OWN)
    for row in rows:
        assert row.note.startswith("left out: a run could take up to ") == (row.k != 8)


def test_what_would_not_fit_into_memory_is_left_out(
    settings: EfficiencySettings, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module_grid, "free_bytes", lambda device: 10_000_000_000)
    before = [
        earlier(EAGER, None, 1e-3, 4_000_000_000),
        earlier(OURS, 4, 1e-3, 4_000_000_000, sentences=2),
        earlier(OURS, 8, 1e-3, None),
    ]
    rows = measure(Shape(64, 1, (4, 8)), settings, running, before, OWN)
    assert {(*row.key, row.passes): row.note for row in rows if row.note} == {
        (EAGER, None, FORWARD): "left out: could take up to 16.0 GB of memory, of which 10.0 GB are free"
    }
    rows = measure(Shape(64, 2, (4, 8)), settings, running, before, OWN)
    assert [row.key for row in rows if row.note.startswith("left out: could take up to ")] == [(EAGER, None), (OURS, 4)]


def test_module_that_cannot_be_built_for_want_of_memory_has_a_note(
    settings: EfficiencySettings, running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    for row in measure(SHAPE, settings, running, [], (peer("large", raising(MemoryError())), *OWN)):
        assert row.note == ("did not fit into memory" if row.contender == "large" else "")
    monkeypatch.setattr(module_grid, "free_bytes", lambda device: 10_000_000_000)
    before = [earlier(OURS, 4, 1e-3, parameters=2_000_000_000), earlier(OURS, 8, 1e-3, parameters=1_000_000_000)]
    rows = measure(Shape(64, 1, (4, 8)), settings, running, before, OWN)
    note = "left out: could take up to 16.0 GB of memory, of which 10.0 GB are free"
    assert {(*row.key, row.passes): row.note for row in rows if row.note} == {(OURS, 4, p): note for p in PASSES}


def test_contenders_take_the_same_numbers_in_either_layout(settings: EfficiencySettings, running: Running) -> None:
    running = dataclasses.replace(running, repeats=4, warm_up=1)
    one, other = Recording(), Recording()
    contenders = (peer("one", lambda sizes: one, time_first=True), peer("other", lambda sizes: other))
    measure(SHAPE, settings, running, [], contenders)
    assert len(one.inputs) == len(other.inputs) >= 2 * running.runs
    assert len(one.gradients) == len(other.gradients) >= running.runs
    for kept, theirs in ((one.inputs, other.inputs), (one.gradients, other.gradients)):
        for x, y in zip(kept, theirs, strict=True):
            assert x.shape == (64, 2, settings.dim)
            assert torch.equal(x, y.transpose(0, 1))
        different = {tuple(x.flatten().tolist()) for x in kept}
        assert len(different) == INPUT_SETS
        assert all(not torch.equal(x, y) for x, y in pairwise(kept[:INPUT_SETS])), "one after the other"


def test_numbers_depend_on_the_seed_alone(settings: EfficiencySettings, running: Running) -> None:
    def first(seed: int) -> tuple[Tensor, Tensor]:
        module, linear = Recording(), []

        def make(sizes: Sizes) -> nn.Module:
            linear.append(nn.Linear(2, 2))
            return module

        measure(SHAPE, settings, dataclasses.replace(running, seed=seed), [], (peer("recording", make),))
        return module.inputs[0], linear[0].weight

    inputs, weight = first(1)
    torch.randn(3)
    for x, same, other in zip((inputs, weight), first(1), first(2), strict=True):
        assert torch.equal(x, same)
        assert not torch.equal(x, other)


def test_slow_contenders_run_a_few_times(settings: EfficiencySettings, running: Running) -> None:
    running = dataclasses.replace(running, repeats=SLOW_RUNS + 2, warm_up=1)
    calls = {"slow": 0, "quick": 0}

    def make(name: str, seconds: float) -> Callable[[Sizes], nn.Module]:
        def wait() -> None:
            calls[name] += 1
            time.sleep(seconds)

        return lambda sizes: Calling(wait)

    contenders = (peer("slow", make("slow", 0.2)), peer("quick", make("quick", 0.0)))
    rows = measure(SHAPE, dataclasses.replace(settings, slow=0.1), running, [], contenders)
    assert [(row.contender, row.runs) for row in rows] == [("slow", SLOW_RUNS), ("quick", SLOW_RUNS + 2)] * 2
    # those before, and one whose memory is listed
    assert calls == {"slow": 2 * (1 + SLOW_RUNS + 1), "quick": 2 * (1 + SLOW_RUNS + 2 + 1)}


@pytest.mark.parametrize("slow", [0.0, 60.0])
def test_nothing_runs_more_often_than_asked(slow: float, settings: EfficiencySettings, running: Running) -> None:
    running = dataclasses.replace(running, repeats=1, warm_up=0)
    rows = measure(SHAPE, dataclasses.replace(settings, slow=slow), running, [], OWN[:1])
    assert [row.runs for row in rows] == [1, 1]
