"""What the study says of time and memory."""

import json
from pathlib import Path

from linformer_fairseq.documents.costs import FILE_NAME, read_costs


def test_costs_are_those_of_the_models_that_are_asked_for(tmp_path: Path) -> None:
    assert read_costs(tmp_path, ["transformer"]) is None
    rows = [{"arm": arm} for arm in ("transformer", "window", "fused")]
    (tmp_path / FILE_NAME).write_text(json.dumps({"asked": {"beam": 2}, "rows": rows}))
    assert read_costs(tmp_path, ["transformer", "linformer"]) == {"asked": {"beam": 2}, "rows": [rows[0], rows[2]]}
