"""Sizes at which modules and whole models take seconds."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from linformer_fairseq.benchmark.efficiency import machine_peak
from linformer_fairseq.benchmark.efficiency.settings import SMOKE, EfficiencySettings
from linformer_fairseq.benchmark.models import ModelSizes
from linformer_fairseq.benchmark.options import fields_of
from linformer_fairseq.benchmark.run_options import RunOptions


@pytest.fixture(scope="package", autouse=True)
def _small_matrices() -> Iterator[None]:
    """Seconds are not needed to see that a peak is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(machine_peak.SIDES, "cpu", 128)
        yield


@pytest.fixture
def settings() -> EfficiencySettings:
    return EfficiencySettings(**{**fields_of(EfficiencySettings, SMOKE), "slow": 60.0, "dim": 16, "heads": 2})


@pytest.fixture
def sizes(settings: EfficiencySettings) -> ModelSizes:
    return settings.model


@pytest.fixture
def options(tmp_path: Path) -> RunOptions:
    return RunOptions(command="", out=tmp_path, threads=1, repeats=2, warm_up=1)
