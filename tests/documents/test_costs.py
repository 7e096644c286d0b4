"""What the study says of time and memory."""

import json
from pathlib import Path

from linformer_fairseq.documents.costs import FILE_NAME, read_costs


def test_costs_are_those_of_the_models_that_are_asked_for(tmp_path: Path) -> None:
    assert read_costs(tmp_path, ["transformer"]) is None
    rows = [
        {"part": part, "length": 64, "arm": arm}
        for part in ("translation", "training")
        for arm in ("fused", "window", "transformer")[1 if part == "translation" else 0 :]
    ]
    asked = {"machine": "a machine", "beam": 2}
    (tmp_path / FILE_NAME).write_text(json.dumps({"asked": asked, "rows": rows}))
    _, translating, fused, _, transformer = rows
    assert read_costs(tmp_path, ["transformer", "linformer"]) == {
        "asked": {"beam": 2},
        "machines": ["a machine"],
        "rows": [transformer, fused, translating],
    }
