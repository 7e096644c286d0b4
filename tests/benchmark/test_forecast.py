"""What is to be expected of a longer length, and what is not worth a try."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.benchmark.forecast import Outlook, forecast

coefficients = st.floats(0, 1e9)


def test_nothing_shorter_gives_no_forecast() -> None:
    assert forecast([], 8) is None
    assert forecast([(8, 1.0), (16, 1.0)], 8) is None


@pytest.mark.parametrize(("power", "expected"), [(2, 4.0), (1, 2.0)])
def test_one_measurement_grows_as_a_whole(power: float, expected: float) -> None:
    assert forecast([(4, 1.0)], 8, power) == expected


@pytest.mark.parametrize("power", [1, 2])
@given(constant=coefficients, factor=coefficients)
def test_two_measurements_grow_by_what_lies_between(power: float, constant: float, factor: float) -> None:
    def value(n: int) -> float:
        return constant + factor * n**power

    assert forecast([(4, value(4)), (8, value(8))], 32, power) == pytest.approx(value(32))


@given(constant=coefficients, slope=coefficients, factor=coefficients)
def test_three_measurements_give_a_parabola(constant: float, slope: float, factor: float) -> None:
    def value(n: int) -> float:
        return constant + slope * n + factor * n**2

    measured = [(n, value(n)) for n in (2, 4, 8, 16)]
    assert forecast(measured, 32) == pytest.approx(value(32))
    assert forecast(measured[:-1][::-1], 16) == pytest.approx(value(16)), "in any order"


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=5), st.sampled_from([1, 2]))
def test_scatter_stays_within_bounds(values: list[float], power: int) -> None:
    measured = [(2**number, value) for number, value in enumerate(values)]
    last, value = measured[-1]
    assert value <= forecast(measured, 2 * last, power) <= 2**power * value * (1 + 1e-9)


def test_nothing_is_said_against_what_is_unknown() -> None:
    outlook = Outlook(time_limit=0.0)
    assert outlook.objection("a", 8, free=0) == ""
    outlook.remember("a", 8, 1.0, 1.0)
    assert outlook.objection("a", 8, free=0) == ""
    assert outlook.objection("b", 16, free=0) == ""
    outlook.remember("b", 8, None, None)
    assert outlook.objection("b", 16, free=0) == ""


def test_objections() -> None:
    outlook = Outlook(time_limit=39.0)
    outlook.remember("a", 8, 10.0, 1e9)
    assert outlook.objection("a", 16, free=None) == "left out: a run could take up to 40 s"
    assert (
        outlook.objection("a", 16, free=4_200_000_000)
        == "left out: could take up to 4.0 GB of memory, of which 4.2 GB are free"
    )
    assert outlook.objection("a", 12, free=4_200_000_000) == ""


def test_powers_are_those_of_time_and_memory() -> None:
    outlook = Outlook(time_limit=39.0, time_power=1, memory_power=2)
    outlook.remember("a", 8, 10.0, 1e9)
    assert outlook.objection("a", 16, free=5_000_000_000) == ""
    assert "4.0 GB" in outlook.objection("a", 16, free=4_000_000_000)


def test_nothing_is_foretold_of_too_few_measurements() -> None:
    outlook = Outlook(time_limit=39.0, time_power=1, fewest=2)
    outlook.remember("a", 2, 100.0, 1e9)
    assert outlook.objection("a", 64, free=1) == ""
    outlook.remember("a", 4, 100.5, None)
    assert outlook.objection("a", 64, free=1) == "left out: a run could take up to 116 s"
