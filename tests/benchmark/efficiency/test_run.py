"""The command from end to end, what a second run does, and the refusals."""

import csv
import dataclasses
import json
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from linformer_fairseq.benchmark.__main__ import main
from linformer_fairseq.benchmark.arguments import parse
from linformer_fairseq.benchmark.efficiency import machine_peak
from linformer_fairseq.benchmark.efficiency.arguments import SMOKE
from linformer_fairseq.benchmark.efficiency.contenders import CONTENDERS, EAGER, FAIRSEQ, FULL, OURS, PEER_LINFORMERS
from linformer_fairseq.benchmark.efficiency.module_grid import BACKWARD, FORWARD, PASSES
from linformer_fairseq.benchmark.efficiency.settings import PARTS, EfficiencySettings
from linformer_fairseq.benchmark.models import TRANSFORMER
from linformer_fairseq.benchmark.running import Running

TINY = shlex.split(
    "--smoke --dim 16 --heads 2 --k 4 --lengths 32,512 --tokens 64 --equal-lengths 32 --equal-tokens 64 --model-k 4 "
    "--positions 16 --inference-tokens 16 --inference-lengths 8,16 --max-tokens 64 --batches 1 --training-lengths 16 "
    "--repeats 1 --warm-up 0 --whole-repeats 1"
)
LENGTHS = (32, 512)
TABLES = {f"{part}.csv" for part in PARTS}
PICTURES = {"modules-forward.png", "modules-backward.png", "sizes.png", "inference.png"}
SECTIONS = [
    "Targets",
    "Attention modules",
    "A slot for every token, n = k",
    "Model size",
    "Inference of whole models",
    "Training of whole models",
    "Modules that were not measured",
]
BLOCKS = {
    *(f"modules, {length} tokens" for length in LENGTHS),
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


@pytest.fixture(scope="module", autouse=True)
def _small_matrices() -> Iterator[None]:
    """Seconds are not needed to see that a peak is there."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(machine_peak.SIDES, "cpu", 128)
        yield


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark") / "new" / "folder"
    assert call(folder) == 0
    return folder


@pytest.fixture
def copied(out: Path, tmp_path: Path) -> Path:
    return shutil.copytree(out, tmp_path / "copied")


def test_all_files_are_left_and_no_others(out: Path) -> None:
    left = files(out)
    assert set(left) == {"report.md", "results.json", *TABLES, *PICTURES}
    assert all(left.values())
    assert all(left[name].startswith(b"\x89PNG") for name in PICTURES)


def test_report_has_its_sections_and_pictures(out: Path) -> None:
    found = sections(out)
    assert list(found) == SECTIONS
    text = (out / "report.md").read_text(encoding="utf-8")
    assert "python -m linformer_fairseq.benchmark efficiency --smoke" in text
    assert set(re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)) == PICTURES
    for passes in PASSES:
        assert f"### Everybody, k = 4, {passes}\n" in found["Attention modules"]
    for contender in CONTENDERS:
        assert contender.name in found["Attention modules"]
    assert TRANSFORMER in found["Training of whole models"]


def test_every_contender_has_a_time_or_a_note(out: Path) -> None:
    for name, lengths in (("modules", LENGTHS), ("equal", (32,))):
        rows = table(out / f"{name}.csv")
        assert {(row["contender"], row["passes"], int(row["length"])) for row in rows} == {
            (contender.name, passes, length) for contender in CONTENDERS for passes in PASSES for length in lengths
        }
        takes_k = {contender.name: contender.takes_k for contender in CONTENDERS}
        for row in rows:
            measured = bool(row["time_median_seconds"])
            assert measured != bool(row["note"])
            assert measured == bool(row["peak_bytes"]) == (row["runs"] == "1")
            k = "4" if name == "modules" else row["length"]
            assert row["k"] == (k if takes_k[row["contender"]] else "")
            assert int(row["sentences"]) == max(1, 64 // int(row["length"]))
        for contender in (*(contender.name for contender in FULL), OURS):
            assert not any(row["note"] for row in rows if row["contender"] == contender)


def test_whatever_was_not_measured_is_in_the_report_with_its_reason(out: Path) -> None:
    rows = [row for name in ("modules", "equal") for row in table(out / f"{name}.csv") if row["note"]]
    assert rows, "32 tokens are too few for a window of Longformer, installed or not"
    for row in rows:
        assert row["note"] in sections(out)["Modules that were not measured"]


def test_targets_speak_of_measured_sizes_alone(out: Path) -> None:
    targets = json.loads((out / "results.json").read_text(encoding="utf-8"))["targets"]
    what = [target["what"] for target in targets]
    for name in (EAGER, FAIRSEQ):
        for passes in (FORWARD, BACKWARD):
            assert f"ours / {name}, n = k = 32, {passes}: time" in what
    assert f"Linformer, k = 4 / {TRANSFORMER}, WMT-like: training tokens a second" in what
    assert {int(n.replace(",", "")) for n in re.findall(r"([\d,]+) tokens", " ".join(what))} <= {512}
    others = {row["contender"] for row in table(out / "modules.csv") if not row["note"]} & {*PEER_LINFORMERS}
    assert len(what) == 4 + 1 + len(others) * 2 * 2  # time and memory of both passes
    lines = [line for line in sections(out)["Targets"].split("\n") if line.startswith("|")][2:]
    assert [line.split("|")[1].strip() for line in lines] == what
    assert [line.split("|")[-2].strip() for line in lines] == ["yes" if x["met"] else "no" for x in targets]


def test_every_part_has_its_rows(out: Path) -> None:
    kept = blocks(out)
    assert set(kept) == BLOCKS
    for part in PARTS:
        rows = [row for name, block in kept.items() if name.partition(",")[0] == part for row in block]
        assert len(table(out / f"{part}.csv")) == len(rows) > 0
    assert {row["positions"] for row in table(out / "sizes.csv")} == {"16"}
    assert {row["length"] for row in table(out / "inference.csv")} == {"8", "16"}
    assert {row["length"] for row in table(out / "training.csv")} == {"", "16"}


def test_second_run_measures_nothing_again(out: Path, capsys: pytest.CaptureFixture) -> None:
    before = files(out)
    assert call(out) == 0
    said = capsys.readouterr().out.split("\n")
    assert {line.removesuffix(": measured before") for line in said if line.endswith(": measured before")} == BLOCKS
    assert not any(line.endswith(" ...") for line in said[1:]), "after the check nothing is done"
    after = files(out)
    for name in ("report.md", "results.json", *TABLES):
        assert after[name] == before[name], name


def test_interrupted_run_goes_on_where_it_was(copied: Path, capsys: pytest.CaptureFixture) -> None:
    results = json.loads((copied / "results.json").read_text(encoding="utf-8"))
    results = {"asked": results["asked"], "blocks": {**results["blocks"]}}
    del results["blocks"]["sizes"]
    (copied / "results.json").write_text(json.dumps(results), encoding="utf-8")
    report = (copied / "report.md").read_text(encoding="utf-8").split("\n")
    assert call(copied) == 0
    said = capsys.readouterr().out
    assert said.count(": measured before\n") == len(BLOCKS) - 1
    assert "model sizes ..." in said
    assert (copied / "report.md").read_text(encoding="utf-8").split("\n")[5:] == report[5:], "all but the command"


def test_parts_that_are_not_asked_for_are_kept_but_not_shown(copied: Path) -> None:
    before = blocks(copied)
    assert call(copied, "--parts", "sizes") == 0
    assert blocks(copied) == before
    assert list(sections(copied)) == ["Targets", "Model size"]


def test_another_size_starts_afresh(copied: Path, capsys: pytest.CaptureFixture) -> None:
    assert call(copied, "--parts", "sizes", "--positions", "8") == 0
    assert "measured before" not in capsys.readouterr().out
    assert set(blocks(copied)) == {"sizes"}
    assert {row["positions"] for row in blocks(copied)["sizes"]} == {8}


def test_parts_alone_are_measured(tmp_path: Path) -> None:
    assert call(tmp_path, "--parts", "training,sizes") == 0
    assert set(files(tmp_path)) == {"report.md", "results.json", "sizes.csv", "sizes.png", "training.csv"}
    assert set(blocks(tmp_path)) == {"sizes", "training, WMT-like", "training, 16 tokens"}
    assert list(sections(tmp_path)) == ["Targets", "Model size", "Training of whole models"]


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ([], "--out"),
        (["--out", "x", "--parts", "sizes,speed"], f"'speed' is not one of {', '.join(PARTS)}"),
        (["--out", "x", "--parts", ""], "'' is not one of"),
        (["--out", "x", "--lengths", "64,0"], "'0' is not a whole number from 1 on"),
        (["--out", "x", "--k", "many"], "'many' is not a whole number from 1 on"),
        (["--out", "x", "--time-limit", "soon"], "'soon' is not a number of seconds"),
        (["--out", "x", "--slow", "-1"], "'-1' is not a number of seconds"),
        (["--out", "x", "--smoke", "--dim", "10"], "--dim 10 is not divisible by --heads 4"),
        (["--out", "x", "--smok"], "--smok"),
        (["--out", __file__], "name a folder"),
    ],
)
def test_wrong_options_end_in_one_sentence(options: list[str], wanted: str, capsys: pytest.CaptureFixture) -> None:
    assert main(["efficiency", *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert wanted in captured.err


def test_options_after_smoke_count() -> None:
    arguments = parse(shlex.split("efficiency --out x --dim 64 --repeats 9 --smoke --heads 2 --warm-up 0"))
    assert (arguments.settings.dim, arguments.running.repeats) == (SMOKE["dim"], SMOKE["repeats"])
    assert (arguments.settings.heads, arguments.running.warm_up) == (2, 0)


def test_smoke_knows_no_other_options_than_there_are() -> None:
    fields = {field.name for kind in (EfficiencySettings, Running) for field in dataclasses.fields(kind)}
    assert set(SMOKE) <= fields


def test_parts_are_in_the_order_of_the_report() -> None:
    parts = parse(shlex.split("efficiency --out x --parts training,modules,training")).settings.parts
    assert parts == ("modules", "training")
    assert parse(shlex.split("efficiency --out x")).settings.parts == PARTS


def test_modules_and_whole_models_have_their_own_time_limits() -> None:
    settings = parse(shlex.split("efficiency --out x --time-limit 5 --whole-time-limit 7")).settings
    assert (settings.time_limit, settings.inference.time_limit, settings.training.time_limit) == (5.0, 7.0, 7.0)
