"""The recipe with fairseq 0.12.2, whose fused encoder refuses the left-padded sources of a plain Transformer."""

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from tests.examples.recipes import SMALL, run, write_text


def has_old_fairseq() -> bool:
    try:
        return bool(version("fairseq"))
    except PackageNotFoundError:
        return False


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_old_fairseq(), reason="with fairseq-fixed the tests of studies do this"),
]


def test_a_plain_transformer_is_trained_and_translates(tmp_path: Path) -> None:
    """Its torch cannot average checkpoints, so the best one is taken."""
    run("prepare.sh", "out", write_text(tmp_path / "text"), cwd=tmp_path).ok()
    intervals = ["--validate-interval-updates", 4, "--save-interval-updates", 4]
    run("train.sh", "out/bin", "out/run", "transformer", *SMALL, *intervals, "--max-update", 8, cwd=tmp_path).ok()
    flags = ["--max-len-a", 0, "--max-len-b", 10]
    run("evaluate.sh", "out/bin", "out/run", "out/reference.de", *flags, cwd=tmp_path, AVERAGE="0").ok()
    scores = json.loads((tmp_path / "out/run/scores.json").read_text())
    assert scores["perplexity"] > 1
    assert len((tmp_path / "out/run/test.de").read_text().splitlines()) == 20
