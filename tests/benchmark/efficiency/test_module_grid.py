"""Rows of attention modules: what is measured, on what, how often, and what is left out; no time itself is tested."""

import dataclasses
import json
import time
from argparse import Namespace
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from linformer_fairseq.benchmark.efficiency.contenders import (
    BY_PART,
    CONTENDERS,
    EAGER,
    FULL,
    FUSED,
    OURS,
    OWN,
    TWO_LEVELS,
)
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
from linformer_fairseq.benchmark.efficiency.peers import Peer, Sizes
from linformer_fairseq.benchmark.efficiency.settings import CAUSAL, CROSS, EfficiencySettings
from linformer_fairseq.benchmark.run_options import RunOptions
from linformer_fairseq.benchmark.timing import too_long
from linformer_fairseq.models.config import LinformerConfig, default_flags

SHAPE = Shape(length=64, sentences=2, ks=(4, 8))
SOME = tuple(contender for contender in CONTENDERS if contender.name in (EAGER, FUSED, OURS))


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

    def __init__(self, action: Callable[[], object]) -> None:
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


def test_shapes_are_batches_of_so_many_tokens_with_the_ks_that_fit(settings: EfficiencySettings) -> None:
    settings = dataclasses.replace(settings, lengths=(4, 8, 12, 16, 64), tokens=32, k=(8, 16))
    assert shapes(settings) == [
        Shape(4, 8, (8,)),  # none fits: the smallest is refused with a note
        Shape(8, 4, (8,)),
        Shape(12, 2, (8,)),
        Shape(16, 2, (8, 16)),
        Shape(64, 1, (8, 16)),
    ]
    settings = dataclasses.replace(settings, equal_lengths=(3, 8, 64), equal_tokens=32)
    assert equal_shapes(settings) == [Shape(3, 10, (3,)), Shape(8, 4, (8,)), Shape(64, 1, (64,))]


def test_every_contender_has_a_row_for_each_pass_and_k(settings: EfficiencySettings, options: RunOptions) -> None:
    shape = Shape(length=128, sentences=2, ks=(4, 8))
    rows = measure(shape, settings, options, [], (*FULL, *OWN))
    keys = [*((full.name, None) for full in FULL), *((own.name, k) for own in OWN for k in shape.ks)]
    assert [(row.passes, *row.key) for row in rows] == [(passes, *key) for passes in PASSES for key in keys]
    peaks = {(row.key, row.passes): row.peak_bytes for row in rows}
    for row in rows:
        assert (row.length, row.sentences, row.runs, row.note) == (128, 2, options.repeats, "")
        assert row.seconds > 0
        assert row.product_rate > 0
        matrices = 0 if row.contender == TWO_LEVELS else 2 * 128 * (row.k or 0)
        assert row.parameters == 4 * settings.dim**2 + 4 * settings.dim + matrices
        assert json.loads(json.dumps(row.facts()))["time"]["median_seconds"] == row.seconds
        if row.passes == BACKWARD:  # with gradients of the parameters and of the input, and the output
            assert row.peak_bytes >= 4 * (row.parameters + 2 * 2 * 128 * settings.dim)
            assert row.peak_bytes > peaks[row.key, FORWARD]
            assert 4 * 2 * 128 * settings.dim <= row.saved_bytes < row.peak_bytes
        else:
            assert row.saved_bytes is None
    scores = 4 * 2 * settings.heads * 128 * 128
    for passes in PASSES:
        own, eager = peaks[(OURS, 4), passes], peaks[(EAGER, None), passes]
        assert own < scores <= eager
        assert eager > 2 * own


@pytest.mark.parametrize("part", [CROSS, CAUSAL])
def test_ours_elsewhere_in_a_model(part: str, settings: EfficiencySettings, options: RunOptions) -> None:
    """Two levels come first after full attention, as the architectures build them, and leave windows closed."""
    shape, contenders = Shape(length=1024, sentences=1, ks=(8,)), BY_PART[part]
    rows = measure(shape, settings, options, [], contenders, part)
    keys = [(FUSED, None), (TWO_LEVELS, 8), (OURS, 8)]
    assert [(row.passes, *row.key) for row in rows] == [(passes, *key) for passes in PASSES for key in keys]
    assert not any(row.note for row in rows)
    attention = contenders[1].build(Sizes(settings.dim, settings.heads, 1024, 8)).attention
    config = LinformerConfig.from_namespace(Namespace(**default_flags("two-level") | {"linformer_k": "8"}))
    place = {CROSS: "cross", CAUSAL: "decoder"}[part]
    built = config.attention(place, 1, settings.heads, 1024)[0](
        settings.dim, settings.heads, self_attention=part == CAUSAL, encoder_decoder_attention=part == CROSS
    )
    assert repr(built) == repr(attention)
    assert attention.rule.sizes(1024) if part == CROSS else attention.exact < 1024


def test_contenders_that_cannot_be_built_have_notes(settings: EfficiencySettings, options: RunOptions) -> None:
    absent = peer("absent", raising(ImportError("No module named 'absent'")), takes_k=True)
    odd = peer("odd", raising(ValueError("odd lengths alone")))
    large = peer("large", raising(MemoryError()))
    rows = measure(SHAPE, settings, options, [], (absent, odd, large, *SOME[:1]))
    for passes in PASSES:
        notes = {(*row.key,): row.note for row in rows if row.passes == passes}
        assert notes.pop((EAGER, None)) == ""
        for k in SHAPE.ks:
            missing = notes.pop(("absent", k))
            assert missing.startswith("absent cannot be imported (No module named 'absent'): pip install")
        assert notes == {("odd", None): "odd lengths alone", ("large", None): "did not fit into memory"}
    for row in rows:
        there = row.contender == EAGER
        assert (row.time is None) == (row.peak_bytes is None) == (row.parameters is None) == (row.runs == 0)
        assert (row.time is not None) == (row.facts()["time"] is not None) == there


def test_what_takes_too_long_is_left_out_there_and_at_longer_lengths(
    settings: EfficiencySettings, options: RunOptions
) -> None:
    settings = dataclasses.replace(settings, time_limit=0.1)
    calls: list[bool] = []

    def wait() -> None:
        calls.append(torch.is_grad_enabled())
        time.sleep(0.2 if torch.is_grad_enabled() else 0.0)

    slow = peer("slow", lambda sizes: Calling(wait))
    before: list[ModuleRow] = []
    for length in (32, 64):
        rows = measure(Shape(length, 1, (4,)), settings, options, before, (slow, *SOME))
        notes = {(row.contender, row.passes): row.note for row in rows if row.note}
        assert notes == {("slow", BACKWARD): too_long(0.1)}
        for row in rows:
            assert (row.time is None) == (row.runs == 0) == (row.peak_bytes is None) == bool(row.note)
            assert row.parameters > 0
        before += rows
    assert calls.count(True) == 1, "at the shorter length"
    assert calls.count(False) == 2 * (options.runs + 1)


def test_contenders_take_the_same_numbers_in_either_layout(settings: EfficiencySettings, options: RunOptions) -> None:
    options = dataclasses.replace(options, repeats=4, warm_up=1)
    one, other = Recording(), Recording()
    contenders = (peer("one", lambda sizes: one, time_first=True), peer("other", lambda sizes: other))
    measure(SHAPE, settings, options, [], contenders)
    assert len(one.inputs) == len(other.inputs) >= 2 * options.runs
    assert len(one.gradients) == len(other.gradients) >= options.runs
    for kept, theirs in ((one.inputs, other.inputs), (one.gradients, other.gradients)):
        for x, y in zip(kept, theirs, strict=True):
            assert x.shape == (64, 2, settings.dim)
            assert torch.equal(x, y.transpose(0, 1))
        different = {tuple(x.flatten().tolist()) for x in kept}
        assert len(different) == INPUT_SETS
        assert all(not torch.equal(x, y) for x, y in pairwise(kept[:INPUT_SETS])), "one after the other"


def test_numbers_depend_on_the_seed_alone(settings: EfficiencySettings, options: RunOptions) -> None:
    def first(seed: int) -> Tensor:
        module = Recording()
        measure(SHAPE, settings, dataclasses.replace(options, seed=seed), [], (peer("one", lambda sizes: module),))
        return module.inputs[0]

    inputs = first(1)
    torch.randn(3)
    assert torch.equal(inputs, first(1))
    assert not torch.equal(inputs, first(2))


def test_slow_contenders_run_a_few_times(settings: EfficiencySettings, options: RunOptions) -> None:
    options = dataclasses.replace(options, repeats=SLOW_RUNS + 2, warm_up=1)
    calls = {"slow": 0, "quick": 0}

    def make(name: str, seconds: float) -> Callable[[Sizes], nn.Module]:
        def wait() -> None:
            calls[name] += 1
            time.sleep(seconds)

        return lambda sizes: Calling(wait)

    contenders = (peer("slow", make("slow", 0.2)), peer("quick", make("quick", 0.0)))
    rows = measure(SHAPE, dataclasses.replace(settings, slow=0.1), options, [], contenders)
    assert [(row.contender, row.runs) for row in rows] == [("slow", SLOW_RUNS), ("quick", SLOW_RUNS + 2)] * 2
    # those before, one whose memory is listed, and one to see what it keeps for its backward
    assert calls == {"slow": 2 * (1 + SLOW_RUNS + 1) + 1, "quick": 2 * (1 + SLOW_RUNS + 2 + 1) + 1}
