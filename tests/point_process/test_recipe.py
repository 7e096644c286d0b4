"""examples/point_process: made events to a report, by fairseq's own commands, and what is refused on the way."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from tests.examples.recipes import doit, refused, run, write_study
from tests.peers.conftest import need_peer
from tests.point_process.conftest import FOLDER
from tests.variants import variants

pytestmark = pytest.mark.slow

PREPARE, TRAIN, EVALUATE = (str(FOLDER / name) for name in ("prepare.sh", "train.sh", "evaluate.sh"))
SMALL = "--decoder-embed-dim 16 --decoder-ffn-embed-dim 16 --decoder-layers 1 --validate-interval-updates 5"
VARIABLES = {"AVERAGE": "0"}


def make_events(folder: Path) -> Path:
    sizes = ("--train", "20", "--valid", "4", "--test", "4", "--shortest", "20", "--longest", "90")
    subprocess.run([sys.executable, FOLDER / "make_events.py", folder, *sizes], check=True)
    return folder


SOME_ARMS = ("quick.yaml", ("full", "performer"))


@pytest.mark.parametrize(
    ("name", "arms"), variants([("quick.yaml", None), ("events.yaml", None), SOME_ARMS], default=[SOME_ARMS])
)
def test_a_study(tmp_path: Path, name: str, arms: Sequence[str] | None) -> None:
    """Its arms, for a few updates."""
    need_peer("performer")
    text, env = make_events(tmp_path / "made events"), {"UPDATES": 10}
    path = write_study(tmp_path, f"point_process/{name}", arms, text=str(text), training=SMALL, env=env, seeds=[1])
    doit(path, cwd=tmp_path).ok()
    report = (tmp_path / "out/report.md").read_text()
    truth = float((text / "truth").read_text())
    for arm in map((tmp_path / "out/runs").joinpath, arms or yaml.safe_load((FOLDER / name).read_text())["arms"]):
        scores = json.loads((arm / "seed-1/scores.json").read_text())
        assert truth < scores["nats"] < 5
        assert 0 < scores["types right, %"] < 100
        assert scores["squared error"] > 0
        assert re.search(rf"^\| {arm.name} .*{scores['nats']:.2f}", report, re.MULTILINE)
    assert "trained tokens/s" in report
    rerun = run(EVALUATE, tmp_path / "out/bin", tmp_path / "out/runs/full/seed-1", cwd=tmp_path, **VARIABLES)
    assert rerun.ok().endswith("full/seed-1: already evaluated\n")


def test_events_of_ones_own(tmp_path: Path) -> None:
    """Types are words, and there is no truth."""
    (tmp_path / "own").mkdir()
    for split in ("train", "valid", "test"):
        (tmp_path / "own" / f"{split}.txt").write_text("buy 1\nsell 2.5\nbuy 4\n\nsell 3\n")
    run(PREPARE, "out", "own", cwd=tmp_path).ok()
    assert run(PREPARE, "out", "own", cwd=tmp_path).ok().endswith("out/bin: already prepared\n")
    run(TRAIN, "out/bin", "run", "linformer_event_transformer", *SMALL.split(), cwd=tmp_path, UPDATES="10").ok()
    run(EVALUATE, "out/bin", "run", cwd=tmp_path, **VARIABLES).ok()
    assert set(json.loads((tmp_path / "run/scores.json").read_text())) == {
        "nats",
        "types right, %",
        "squared error",
        "averaged",
    }


def test_refusals(tmp_path: Path) -> None:
    text = make_events(tmp_path / "made")
    (text / "test.txt").write_text("A 2\nB 1\n")
    said = refused(PREPARE, "out", text, cwd=tmp_path)
    assert said.endswith("test.txt has times that do not rise: give numbers, from above 0, each larger than the last")
    (text / "test.txt").write_text("Z 2\n")
    assert "a type of event, Z, that train.txt lacks" in refused(PREPARE, "out", text, cwd=tmp_path)
    assert not (tmp_path / "out/bin").exists()
    (text / "test.txt").write_text("A 2\n")
    run(PREPARE, "out", text, cwd=tmp_path).ok()
    result = run(TRAIN, "out/bin", "run", "event_transformer", "--tokens-per-sample", 30, cwd=tmp_path)
    assert " events: cut it or raise --tokens-per-sample" in result.output
    assert result.sentence().startswith("error: fairseq-train failed, see")
    small = ("event_transformer", *SMALL.split())
    run(TRAIN, "out/bin", "begun", *small, cwd=tmp_path, UPDATES="10").ok()
    (text / "train.txt").write_text((text / "train.txt").read_text().replace("\n\n", "0\n\n"))
    shutil.rmtree(tmp_path / "out")
    run(PREPARE, "out", text, cwd=tmp_path).ok()
    assert "begun was begun with different flags" in refused(
        TRAIN, "out/bin", "begun", *small, cwd=tmp_path, UPDATES="10"
    )
    (text / "test.txt").unlink()
    assert "usage: prepare.sh" in refused(PREPARE, "other", text, cwd=tmp_path)
