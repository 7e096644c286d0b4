"""The study from end to end, in a tiny size: killed, gone on with, merged, reported."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linformer_fairseq.checkpoints import model_settings, read_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_json
from linformer_fairseq.masked_lm import swap
from linformer_fairseq.masked_lm.arguments import parse
from linformer_fairseq.masked_lm.report import write_report
from linformer_fairseq.masked_lm.run import run
from linformer_fairseq.recipe.course import CHECKPOINTS
from tests.fairseq_commands import ROOT, environment
from tests.masked_lm.made_text import write_books
from tests.variants import reads_checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, reads_checkpoints]
SIZES = (
    "--vocabulary 60 --layers 1 --dim 16 --heads 2 --ffn-dim 16 --max-tokens 256 --updates 10 --validate-updates 5 "
    "--lr 0.01 --warmup-updates 2 -k 8 --cost-repeats 1 --threads 1 --lengths 32 --seeds 1 --sharings headwise "
    "--arms transformer,linformer"
)
TUNED = f"0.1/{CHECKPOINTS}/checkpoint_last.pt"


def arguments(data: Path, out: Path, *more: str) -> list[str]:
    return ["--data", str(data), "--out", str(out), *SIZES.split(), *more]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_books(tmp_path_factory.mktemp("books"))


@pytest.fixture(scope="module")
def finished(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("masked-lm") / "out"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(swap, "SHARES", (0.0, 0.1))
        run(parse(arguments(data, out, "--ks", "4,8", "--jobs", "2")))
    return out


def results(out: Path) -> dict:
    return json.loads((out / "results.json").read_text())


def test_every_training_has_a_perplexity_and_a_curve(finished: Path) -> None:
    rows = results(finished)["trainings"]
    assert [(row["arm"], row["k"]) for row in rows] == [("transformer", 0), ("linformer", 8), ("linformer", 4)]
    for row in rows:
        assert 1 < row["perplexity"] < 200
        assert {5, 10} <= {update for update, _ in row["curve"]}
        assert row["updates"] == 10


def test_replaced_attention_is_validated_before_and_after_training(finished: Path) -> None:
    found = results(finished)
    by_key = {(row["arm"], row["share"]): row for row in found["swapped"]}
    assert by_key.keys() == {("transformer", 0.1), ("linformer", 0.0), ("linformer", 0.1)}
    assert {row["share"]: row["updates"] for row in found["swapped"]} == {0.0: 0, 0.1: 1}
    assert {row["before"] for row in found["swapped"]} == {found["trainings"][0]["perplexity"]}
    for checkpoint in ("converted.pt", TUNED):
        settings = model_settings(read_checkpoint(finished / "swapped" / "linformer-n32-k8" / "seed-1" / checkpoint))
        assert settings.linformer_projection == "linear"
        assert settings.linformer_init == "identity", "it goes on as it was converted"


def test_spectra_and_costs(finished: Path) -> None:
    found = results(finished)
    assert [(row["length"], row["rank"]) for row in found["spectra"]] == [(32, 8)]
    assert all(0 < row["lowest"] <= row["cumulative"] <= 1 for row in found["spectra"])
    rows = found["costs"]["rows"]
    assert {(row["arm"], row["length"]) for row in rows} == {("transformer", 32), ("linformer", 32)}
    assert all(row["tokens_per_second"] > 0 and row["peak_bytes"] > 0 for row in rows)
    assert [row["base"]["arm"] for row in rows] == ["transformer"] * 2


def test_the_report_shows_it(finished: Path) -> None:
    text = (finished / "report.md").read_text()
    for picture in ("curves.png", "costs.png", "spectrum/n32/spectrum.png"):
        assert (finished / picture).stat().st_size > 1000
        assert f"({picture})" in text
    (finished / "report.md").unlink()
    write_report(finished)
    assert (finished / "report.md").read_text() == text


def test_another_run_keeps_what_is_there(data: Path, finished: Path) -> None:
    logs = {path: path.read_bytes() for path in finished.rglob("train.log")}
    before = results(finished)
    run(parse(arguments(data, finished, "--arms", "transformer", "--ks", "8", "--no-swap")))
    assert logs == {path: path.read_bytes() for path in finished.rglob("train.log")}
    assert results(finished)["trainings"] == before["trainings"][:1]
    write_json(finished / "results.json", before)


def test_results_of_another_machine_are_merged(data: Path, finished: Path, tmp_path: Path) -> None:
    mine = ["--arms", "linformer", "--ks", "8", "--seeds", "7", "--no-costs"]
    run(parse(arguments(data, tmp_path / "out", *mine, "--merge", str(finished / "results.json"))))
    found, other = results(tmp_path / "out"), results(finished)
    assert found["trainings"][1:] == other["trainings"]
    assert (found["swapped"], found["costs"]) == (other["swapped"], other["costs"])
    assert "Transformer" in (tmp_path / "out" / "report.md").read_text()
    twice = parse(arguments(data, tmp_path / "out", *mine, "--merge", str(tmp_path / "out" / "results.json")))
    with pytest.raises(UserError, match="linformer at 32 tokens with seed 7, which is there already: leave one out"):
        run(twice)


def test_the_same_text_and_settings_for_all_models(data: Path, finished: Path) -> None:
    with pytest.raises(UserError, match=r"was made with lr = 0.01, not 0.5: all models need the same"):
        run(parse(arguments(data, finished, "--ks", "8", "--lr", "0.5")))
    with pytest.raises(UserError, match=r"other texts, or another split of them: .* put the former files back"):
        run(parse(arguments(data, finished, "--ks", "8", "--valid", "book-0")))


def test_a_killed_study_goes_on_where_it_was(data: Path, tmp_path: Path) -> None:
    own = ["--arms", "transformer", "--ks", "8", "--no-swap", "--no-costs"]
    command = [sys.executable, "-m", "linformer_fairseq.masked_lm", *arguments(data, tmp_path / "out", *own)]
    log = tmp_path / "out" / "runs" / "transformer-n32" / "seed-1" / "train.log"
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while process.poll() is None and not any(log.parent.glob("checkpoints/*.pt")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert any(log.parent.glob("checkpoints/*.pt"))
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, stdout=subprocess.DEVNULL)
    (row,) = results(tmp_path / "out")["trainings"]
    assert row["updates"] == 10


def test_a_report_needs_results(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"results.json is missing: run the study first"):
        run(parse(["--out", str(tmp_path), "--report-only"]))
