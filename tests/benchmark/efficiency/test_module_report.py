"""A line in a style of its own for each contender, however many there are."""

import dataclasses
from pathlib import Path

import pytest

from linformer_fairseq.benchmark.efficiency import module_report
from linformer_fairseq.benchmark.efficiency.contenders import CONTENDERS, EAGER
from linformer_fairseq.benchmark.efficiency.module_grid import BACKWARD, FORWARD, ModuleRow
from linformer_fairseq.benchmark.efficiency.module_report import PEAK, SECONDS, slope
from linformer_fairseq.benchmark.efficiency.settings import EfficiencySettings
from linformer_fairseq.benchmark.timing import Spread

MORE = [*CONTENDERS, *(CONTENDERS[-1]._replace(name=f"another {number}") for number in range(50))]


def row(name: str, length: int, seconds: float | None, peak: int | None = None, sentences: int = 1) -> ModuleRow:
    time = None if seconds is None else Spread(seconds, seconds, seconds)
    return ModuleRow(name, None, FORWARD, length, sentences, 3, time, peak, 1, None)


def test_styles_do_not_run_out() -> None:
    names = [contender.name for contender in MORE]
    styles = module_report.styles(names)
    assert list(styles)[: len(names)] == names
    looks = [(style["marker"], style["color"], style.get("linestyle")) for style in styles.values()]
    assert len(set(looks)) == len(names)


def test_report_of_contenders_and_lengths_that_are_others_now(settings: EfficiencySettings, tmp_path: Path) -> None:
    """Stored results have contenders that are no longer known, and an interrupted run lacks its last lengths."""
    rows = [row(contender.name, n, n / 1e3, n) for contender in MORE for n in settings.lengths[:1]]
    rows += [dataclasses.replace(x, passes=BACKWARD) for x in rows]
    share = module_report.grid(rows, settings, tmp_path)[-1]
    assert share.splitlines()[-1].endswith("– |")
    assert {path.name for path in tmp_path.iterdir()} == {"modules-forward.png", "modules-backward.png"}


@pytest.mark.parametrize("power", [1, 2])
def test_slope_is_the_exponent_of_a_sentence(power: int) -> None:
    rows = [row(EAGER, n, 8 // n * n**power, 3 * 8 // n * n**power, sentences=8 // n) for n in (2, 4, 8)]
    rows += [row(EAGER, 16, None)]
    assert slope(rows, SECONDS) == pytest.approx(power)
    assert slope(rows, PEAK) == pytest.approx(power)
    assert slope(rows[-2:], SECONDS) is None
