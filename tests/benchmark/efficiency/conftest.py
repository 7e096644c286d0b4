"""Sizes at which whole models take seconds."""

from pathlib import Path

import pytest

from linformer_fairseq.benchmark.models import ModelSizes
from linformer_fairseq.benchmark.running import Running


@pytest.fixture
def sizes() -> ModelSizes:
    return ModelSizes(dim=16, heads=2, layers=1, ffn_dim=16, words=20)


@pytest.fixture
def running(tmp_path: Path) -> Running:
    return Running("", tmp_path, "cpu", "float32", threads=1, repeats=2, warm_up=1, seed=1)
