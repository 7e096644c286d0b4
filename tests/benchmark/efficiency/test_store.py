"""What was measured is kept, whatever happens afterwards."""

import json
from pathlib import Path

import pytest

from linformer_fairseq.benchmark.efficiency.inference import InferenceRow
from linformer_fairseq.benchmark.efficiency.model_size import ModelSizeRow
from linformer_fairseq.benchmark.efficiency.module_grid import ModuleRow
from linformer_fairseq.benchmark.efficiency.store import Store
from linformer_fairseq.benchmark.efficiency.training import TrainingRow
from linformer_fairseq.benchmark.timing import Spread

ASKED = {"lengths": [8, 16], "dim": 4, "time_limit": 1.5}
COMMAND = "benchmark efficiency"
TIME = Spread(0.2, 0.1, 1 / 3)
BATCHES = ("float32", 2, 10, 100, 90, 0.25)
ROWS = [
    ModuleRow("ours", 4, "forward", 8, 2, 3, TIME, 1000, 80, 5e10),
    ModuleRow("other", None, "forward and backward", 8, 2, 0, None, None, None, None, "did not fit into memory"),
    TrainingRow("ours", None, 251, *BATCHES, TIME, 7),
    TrainingRow("ours", 16, 16, *BATCHES, None, None, "left out"),
    ModelSizeRow("ours", 16, 4, "headwise", "linear", 100, 10, 400),
    ModelSizeRow("fairseq's", 16, None, None, None, None, None, None, "left out"),
    InferenceRow("ours", "encoder", 16, 2, TIME, None),
    InferenceRow("ours", "encoder", 16, 2, None, None, "left out"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.json"


def never() -> list:
    raise AssertionError("measured once more")


def test_rows_come_back_as_they_were(path: Path) -> None:
    blocks = {}
    store = Store(path, ASKED, COMMAND)
    for number, row in enumerate(ROWS):
        assert store.rows(str(number), type(row), lambda row=row: [row, row]) == [row, row]
        blocks[str(number)] = [row.facts()] * 2
        written = json.loads(path.read_text(encoding="utf-8"))
        assert written == {"asked": ASKED, "command": COMMAND, "blocks": blocks}, "whole after every block"
    again = Store(path, ASKED, COMMAND)
    for number, row in enumerate(ROWS):
        restored = again.rows(str(number), type(row), never)
        assert restored == [row, row]
        assert [x.facts() for x in restored] == [row.facts()] * 2
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
