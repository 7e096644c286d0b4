"""The command from end to end, and what a second run does."""

import csv
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import torch

from linformer_fairseq.benchmark import arguments
from linformer_fairseq.benchmark.__main__ import main
from linformer_fairseq.benchmark.efficiency.contenders import BY_PART, CONTENDERS, FULL, OWN
from linformer_fairseq.benchmark.efficiency.module_grid import PASSES
from linformer_fairseq.benchmark.efficiency.settings import PARTS

STORED = Path(__file__).parents[3] / "docs" / "benchmarks" / "cpu"
TINY = shlex.split(
    "--smoke --dim 16 --heads 2 --k 4 --lengths 32,512 --tokens 64 --equal-lengths 32 --equal-tokens 64 --model-k 4 "
    "--positions 16 --inference-tokens 16 --inference-lengths 8,16 --max-tokens 64 --batches 1 --training-lengths 16 "
    "--repeats 1 --warm-up 0 --whole-repeats 1"
)
LENGTHS = (32, 512)
TABLES = {f"{part}.csv" for part in PARTS}
MODULE_PICTURES = {f"{part}-{way}.png" for part in ("modules", "cross", "causal") for way in ("forward", "backward")}
PICTURES = MODULE_PICTURES | {"sizes.png", "inference.png"}
SECTIONS = [
    "Attention modules",
    "Cross-attention",
    "Causal self-attention",
    "A slot for every token, n = k",
    "Model size",
    "Inference of whole models",
    "Training of whole models",
    "Modules that were not measured",
]
BLOCKS = {
    *(f"{part}, {length} tokens" for part in ("modules", "cross", "causal") for length in LENGTHS),
    "equal, 32 tokens",
    "sizes",
    *(f"inference, {length} tokens" for length in (8, 16)),
    *(f"training, {kind}" for kind in ("WMT-like", "16 tokens")),
}


def call(folder: Path, *more: str) -> int:
    return main(["efficiency", *TINY, "--out", str(folder), "--threads", str(torch.get_num_threads()), *more])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def blocks(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text(encoding="utf-8"))["blocks"]


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def sections(folder: Path) -> dict[str, str]:
    """The text under each heading of the report."""
    parts = re.split(r"^## (.*)$", (folder / "report.md").read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark") / "new" / "folder"
    assert call(folder) == 0
    return folder


@pytest.fixture
def copied(out: Path, tmp_path: Path) -> Path:
    return shutil.copytree(out, tmp_path / "copied")


def test_all_files_are_left_and_the_report_shows_them(out: Path) -> None:
    left = files(out)
    assert set(left) == {"report.md", "results.json", *TABLES, *PICTURES}
    assert all(left[name].startswith(b"\x89PNG") for name in PICTURES)
    text = left["report.md"].decode()
    assert list(sections(out)) == SECTIONS
    assert "python -m linformer_fairseq.benchmark efficiency --smoke" in text
    assert set(re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)) == PICTURES
    assert all(contender.name in text for contender in CONTENDERS)


def test_every_contender_has_a_time_or_a_note(out: Path) -> None:
    takes_k = {contender.name: contender.takes_k for contender in CONTENDERS}
    own = {contender.name for contender in (*FULL, *OWN)}
    for name, contenders in BY_PART.items():
        rows, lengths = table(out / f"{name}.csv"), (32,) if name == "equal" else LENGTHS
        assert {(row["contender"], row["passes"], int(row["length"])) for row in rows} == {
            (contender.name, passes, length) for contender in contenders for passes in PASSES for length in lengths
        }
        for row in rows:
            assert bool(row["time_median_seconds"]) == bool(row["peak_bytes"]) != bool(row["note"])
            assert bool(row["k"]) == takes_k[row["contender"]]
            assert not (row["note"] and row["contender"] in own)
            assert row["note"] in sections(out)["Modules that were not measured"]


def test_every_part_has_its_rows(out: Path) -> None:
    kept = blocks(out)
    assert set(kept) == BLOCKS
    for part in PARTS:
        rows = [row for name, block in kept.items() if name.partition(",")[0] == part for row in block]
        assert len(table(out / f"{part}.csv")) == len(rows) > 0


def test_second_run_measures_what_is_missing_alone(copied: Path, capsys: pytest.CaptureFixture) -> None:
    before = files(copied)
    results = json.loads(before["results.json"])
    del results["blocks"]["sizes"]  # as an interruption leaves it
    (copied / "results.json").write_text(json.dumps(results), encoding="utf-8")
    assert call(copied, "--report-only") == 0
    assert list(sections(copied)) == [section for section in SECTIONS if section != "Model size"]
    assert call(copied, "--seed", "1") == 0
    said = capsys.readouterr().out.split("\n")
    kept = {line.removesuffix(": already measured") for line in said if line.endswith(": already measured")}
    assert kept == BLOCKS - {"sizes"}
    assert [line for line in said if line.endswith(" ...")][1:] == ["model sizes ..."], "after the check"
    after = files(copied)
    assert all(after[name] == before[name] for name in TABLES)
    lines = [files["report.md"].decode().split("\n") for files in (before, after)]
    assert [one for one, other in zip(*lines, strict=True) if one != other] == [lines[0][4]], "the command alone"


def test_parts_that_are_not_asked_for_are_kept_but_not_shown(copied: Path) -> None:
    before = blocks(copied)
    assert call(copied, "--parts", "sizes") == 0
    assert blocks(copied) == before
    assert list(sections(copied)) == ["Model size"]
    assert set(files(copied)) == {"report.md", "results.json", "sizes.csv", "sizes.png"}


def test_another_size_starts_afresh(copied: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(copied, "--parts", "sizes", "--positions", "8") == 0
    assert "already measured" not in capsys.readouterr().out
    assert set(blocks(copied)) == {"sizes"}
    assert {row["positions"] for row in blocks(copied)["sizes"]} == {8}


def test_stored_report_is_what_its_results_give(tmp_path: Path) -> None:
    """Without measuring anything, on a machine that need not be the same."""
    folder = shutil.copytree(STORED, tmp_path / "copied")
    (folder / "report.md").unlink()
    assert main(["efficiency", "--out", str(folder), "--report-only"]) == 0
    before, after = files(STORED), files(folder)
    assert set(after) == set(before)
    for name in before.keys() - PICTURES:
        assert after[name] == before[name], name


def test_report_without_results_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["efficiency", "--out", str(tmp_path / "new"), "--report-only"]) == 2
    assert capsys.readouterr().err.endswith("is not there: run the benchmark without --report-only.\n")
    assert not (tmp_path / "new").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
def test_command_may_take_what_memory_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    limits = []
    monkeypatch.setattr(
        arguments, "run_efficiency", lambda *options: limits.append(resource.getrlimit(resource.RLIMIT_DATA)[0])
    )
    before = resource.getrlimit(resource.RLIMIT_DATA)
    assert call(tmp_path) == 0
    assert limits[0] != resource.RLIM_INFINITY
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
