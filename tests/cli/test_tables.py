"""Cells of the reports' tables."""

import pytest

from linformer_fairseq.cli.tables import UNKNOWN, with_deviation, with_interval


@pytest.mark.parametrize(
    ("values", "form", "cell"),
    [
        ([], ",.2f", UNKNOWN),
        ([1234.567], ",.2f", "1,234.57"),
        ([1.0, 2.0, 3.0], ",.2f", "2.00 ± 1.00"),
        ([0.01, 0.03], "+.1%", "+2.0% ± 1.4%"),
        ([-0.01], "+.1%", "-1.0%"),
    ],
)
def test_a_deviation_stands_behind_the_mean_of_several(values: list[float], form: str, cell: str) -> None:
    assert with_deviation(values, form) == cell


def test_an_interval_has_signs() -> None:
    assert with_interval(-0.25, -1.664, 1) == "-0.25 [-1.66, +1.00]"
