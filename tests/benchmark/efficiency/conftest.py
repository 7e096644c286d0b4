"""Sizes at which modules and whole models take seconds."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from linformer_fairseq.benchmark.efficiency import machine_peak
from linformer_fairseq.benchmark.efficiency.arguments import SMOKE
from linformer_fairseq.benchmark.efficiency.settings import PARTS, EfficiencySettings
from linformer_fairseq.benchmark.models import ModelSizes
from linformer_fairseq.benchmark.run_options import RunOptions


@pytest.fixture(scope="package", autouse=True)
def _small_matrices() -> Iterator[None]:
    """Seconds are not needed to see that a peak is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(machine_peak.SIDES, "cpu", 128)
        yield


@pytest.fixture
def settings() -> EfficiencySettings:
    fields = {field.name for field in dataclasses.fields(EfficiencySettings)}
    tiny = {name: value for name, value in SMOKE.items() if name in fields}
    limits = {"time_limit": 60.0, "slow": 60.0, "whole_time_limit": 60.0}
    return EfficiencySettings(**{**tiny, **limits, "parts": PARTS, "report_only": False, "dim": 16, "heads": 2})


@pytest.fixture
def sizes(settings: EfficiencySettings) -> ModelSizes:
    return settings.model


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    return RunOptions("", tmp_path, "cpu", "float32", threads=1, repeats=2, warm_up=1, seed=1)
