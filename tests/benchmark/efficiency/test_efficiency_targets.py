"""Targets are computed from the rows, and only where there are rows."""

import pytest

from linformer_fairseq.benchmark.efficiency.contenders import EAGER, FAIRSEQ, FUSED, OURS, PEER_LINFORMERS
from linformer_fairseq.benchmark.efficiency.module_grid import BACKWARD, FORWARD, ModuleRow
from linformer_fairseq.benchmark.efficiency.targets import compare, peak, seconds, slope
from linformer_fairseq.benchmark.efficiency.training import TrainingRow
from linformer_fairseq.benchmark.models import TRANSFORMER
from linformer_fairseq.benchmark.timing import Spread

OTHER = PEER_LINFORMERS[0]
OUR_MODEL = "Linformer, k = 32"


def module(
    contender: str,
    k: int | None,
    length: int,
    time: float | None,
    size: int | None = 1000,
    passes: str = FORWARD,
    sentences: int = 1,
) -> ModuleRow:
    spread = None if time is None else Spread(time, time / 2, 2 * time)
    return ModuleRow(contender, k, passes, length, sentences, 5, spread, size, 1, None, "" if spread else "left out")


def training(model: str, length: int | None, time: float | None) -> TrainingRow:
    spread = None if time is None else Spread(time, time / 2, 2 * time)
    return TrainingRow(model, length, length or 251, "float32", 1, 1, 600, 600, 0.0, spread, None)


def outcome(grid: list = (), equal: list = (), trained: list = ()) -> dict[str, tuple[float | None, bool | None]]:
    found = {}
    for target in compare(grid, equal, trained):
        found[target.what] = target.measured and round(target.measured, 6), target.met
    return found


def test_nothing_measured_gives_no_targets() -> None:
    assert compare([], [], []) == []


def test_rows_alone_or_of_other_sizes_give_no_targets() -> None:
    grid = [
        module(OURS, 256, 8192, 1.0),
        module(EAGER, None, 4096, 9.0),
        module(EAGER, None, 8192, 9.0, passes=BACKWARD),
        module(OTHER, 256, 4096, 9.0),
        module(OTHER, 128, 8192, 9.0),
        module(OURS, 512, 256, 1.0),
        module(OTHER, 512, 256, 1.0),
    ]
    equal = [module(OURS, 256, 256, 1.0), module(EAGER, None, 256, 1.0), module(OURS, 32, 32, 1.0)]
    trained = [training(OUR_MODEL, None, 1.0), training(OUR_MODEL, 64, 1.0), training(TRANSFORMER, 64, 1.0)]
    assert outcome(grid, equal, trained) == {}


@pytest.mark.parametrize(("k", "met_at"), [(256, 10.0), (128, 13.0)])
@pytest.mark.parametrize(("factor", "met"), [(1.0, True), (0.99, False)])
def test_against_full_attention(k: int, met_at: float, factor: float, met: bool) -> None:
    grid = [
        module(OURS, k, 8192, 2.0, 1000),
        module(EAGER, None, 8192, 2.0 * met_at * factor, round(15_000 * factor)),
        module(FUSED, None, 8192, 2.0 * met_at * factor, 10),
        module(FAIRSEQ, None, 8192, 1.0),
    ]
    what = f"/ ours, k = {k}, 8,192 tokens, forward"
    assert outcome(grid) == {
        f"{EAGER} {what}: time": (round(met_at * factor, 6), met),
        f"{EAGER} {what}: peak memory": (round(15.0 * factor, 6), met),
        f"{FUSED} {what}: time": (round(met_at * factor, 6), met),
    }


def test_memory_that_is_not_known() -> None:
    grid = [module(OURS, 256, 8192, 1.0, None), module(EAGER, None, 8192, 20.0), module(OTHER, 256, 8192, 2.0)]
    found = {what.rpartition(": ")[2]: outcome for what, outcome in outcome(grid).items()}
    assert found["peak memory"] == (None, None)
    assert found["time"] == (2.0, True)


def test_against_other_linformers_by_the_least_of_all_sizes() -> None:
    grid = [
        module(OURS, 128, 256, 1.0),
        module(OTHER, 128, 256, 0.1, 1),  # too short to count
        module(OURS, 128, 512, 1.0, 1000),
        module(OTHER, 128, 512, 1.25, 3000),
        module(OURS, 128, 1024, 1.0, 1000),
        module(OTHER, 128, 1024, 2.0, 999),
        module(OURS, 64, 1024, 1.0, 1000),
        module(OTHER, 64, 1024, 5.0, 5000),
        module(OURS, 64, 1024, 1.0, 1000, BACKWARD),
        module(OTHER, 64, 1024, 1.24, 1000, BACKWARD),
    ]
    forward = f"{OTHER} / ours, forward, least of 3"
    backward = f"{OTHER} / ours, forward and backward, least of 1 (k = 64, 1,024 tokens)"
    assert outcome(grid) == {
        f"{forward} (k = 128, 512 tokens): time": (1.25, True),
        f"{forward} (k = 128, 1,024 tokens): peak memory": (0.999, False),
        f"{backward}: time": (1.24, False),
        f"{backward}: peak memory": (1.0, True),
    }


def test_a_slot_for_every_token() -> None:
    equal = [
        module(OURS, 32, 32, 1.05),
        module(EAGER, None, 32, 1.0),
        module(FAIRSEQ, None, 32, 0.99),
        module(FUSED, None, 32, 0.1),
        module(OURS, 128, 128, 2.0, passes=BACKWARD),
        module(FAIRSEQ, None, 128, 4.0, passes=BACKWARD),
    ]
    assert outcome(equal=equal) == {
        f"ours / {EAGER}, n = k = 32, forward: time": (1.05, True),
        f"ours / {FAIRSEQ}, n = k = 32, forward: time": (1.060606, False),
        f"ours / {FAIRSEQ}, n = k = 128, forward and backward: time": (0.5, True),
    }


@pytest.mark.parametrize(("power", "met"), [(1.0, True), (1.1, True), (1.2, False), (2.0, False)])
def test_time_grows_with_the_length_alone(power: float, met: bool) -> None:
    def rows(lengths: tuple[int, ...]) -> list[ModuleRow]:
        # those outside the range say something else
        grown = [module(OURS, 256, n, n**power / 2e9 * (1 if 2048 <= n <= 16384 else 50)) for n in lengths]
        # other packages' slope is no target
        return [*grown, *(module(FAIRSEQ, None, n, float(n**2)) for n in lengths)]

    what = "ours, k = 256, forward: slope of time from 2,048 to 16,384 tokens"
    found = compare(rows((1024, 2048, 4096, 16384, 32768)), [], [])
    assert [target.what for target in found] == [what]
    assert found[0].measured == pytest.approx(power, abs=1e-9)
    assert (found[0].bound, found[0].relation) == (1.1, "<=")
    if power != 1.1:  # where rounding decides
        assert found[0].met == met
    for lengths in ((2048, 4096, 8192), (4096, 16384), (2048,)):
        assert outcome(rows(lengths)) == {}


def test_slopes_of_passes_and_ks_are_told_apart() -> None:
    grid = [
        module(OURS, k, n, time, passes=passes)
        for k, passes, times in ((128, FORWARD, (1.0, 8.0)), (128, BACKWARD, (1.0, 64.0)), (256, FORWARD, (1.0, 1.0)))
        for n, time in zip((2048, 16384), times, strict=True)
    ]
    what = "slope of time from 2,048 to 16,384 tokens"
    assert outcome(grid) == {
        f"ours, k = 128, forward: {what}": (1.0, True),
        f"ours, k = 128, forward and backward: {what}": (2.0, False),
        f"ours, k = 256, forward: {what}": (0.0, True),
    }


def test_training() -> None:
    trained = [
        training(TRANSFORMER, None, 1.0),
        training(OUR_MODEL, None, 1.1),
        training("Linformer, k = 64", None, 1.0),
        training(TRANSFORMER, 4096, 3.0),
        training(OUR_MODEL, 4096, 1.5),
        training("Linformer, k = 64", 4096, 2.0),
        training(TRANSFORMER, 1024, 3.0),
        training(OUR_MODEL, 1024, 1.0),
    ]
    assert outcome(trained=trained) == {
        f"{OUR_MODEL} / {TRANSFORMER}, WMT-like: training tokens a second": (0.909091, False),
        f"Linformer, k = 64 / {TRANSFORMER}, WMT-like: training tokens a second": (1.0, True),
        f"{OUR_MODEL} / {TRANSFORMER}, 4,096 tokens: training tokens a second": (2.0, True),
        f"Linformer, k = 64 / {TRANSFORMER}, 4,096 tokens: training tokens a second": (1.5, False),
    }


def test_targets_of_rows_without_a_time_are_not_measured() -> None:
    grid = [
        module(OURS, 256, 8192, 1.0),
        module(EAGER, None, 8192, None),
        module(OTHER, 256, 8192, None),
        module(OURS, 128, 8192, None),
        module(FUSED, None, 8192, None),
        module(OURS, 256, 2048, 1.0),
        module(OURS, 256, 16384, None),
    ]
    equal = [module(OURS, 32, 32, None), module(EAGER, None, 32, 1.0), module(OURS, 128, 128, 1.0)]
    equal.append(module(EAGER, None, 128, None))
    trained = [training(TRANSFORMER, None, None), training(OUR_MODEL, None, 1.0)]
    trained += [training(TRANSFORMER, 4096, 1.0), training(OUR_MODEL, 4096, None)]
    what = "8,192 tokens, forward"
    long = [f"{EAGER} / ours, k = {k}, {what}: {of}" for k in (256, 128) for of in ("time", "peak memory")]
    assert outcome(grid, equal, trained) == {
        **dict.fromkeys(long, (None, None)),
        long[1]: (1.0, False),
        long[3]: (1.0, False),
        **{f"{FUSED} / ours, k = {k}, {what}: time": (None, None) for k in (256, 128)},
        **{f"ours / {EAGER}, n = k = {n}, forward: time": (None, None) for n in (32, 128)},
        "ours, k = 256, forward: slope of time from 2,048 to 16,384 tokens": (None, None),
        f"{OUR_MODEL} / {TRANSFORMER}, WMT-like: training tokens a second": (None, None),
        f"{OUR_MODEL} / {TRANSFORMER}, 4,096 tokens: training tokens a second": (None, None),
    }


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5, 2.0])
def test_slope_of_powers_is_exact(power: float) -> None:
    rows = [module(OURS, 4, n, 3e-6 * n**power, size=7 * n**2) for n in (64, 128, 1024, 4096)]
    assert slope(rows, seconds) == pytest.approx(power, abs=1e-9)
    assert slope(rows, peak) == pytest.approx(2.0, abs=1e-9)


def test_slope_is_that_of_a_sentence() -> None:
    """Batches of a constant number of tokens, in which a longer sentence takes as long."""
    rows = [module(OURS, 4, n, 0.5, size=1024, sentences=4096 // n) for n in (64, 512, 4096)]
    assert slope(rows, seconds) == pytest.approx(1.0, abs=1e-9)
    assert slope(rows, peak) == pytest.approx(1.0, abs=1e-9)


def test_slope_needs_two_lengths() -> None:
    rows = [module(OURS, 4, 64, 1.0, size=None), module(OURS, 4, 128, None), module(OURS, 4, 256, 4.0)]
    assert slope([], seconds) is None
    assert slope(rows[:2], seconds) is None
    assert slope(rows, seconds, (100, 1000)) is None
    assert slope(rows, seconds, (64, 256)) == pytest.approx(1.0, abs=1e-9)
    assert slope(rows[:2], peak) is None
