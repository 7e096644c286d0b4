"""The study from end to end, in a tiny size: killed, gone on with, merged, reported."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from linformer_fairseq.classification.arguments import parse
from linformer_fairseq.classification.report import write_report
from linformer_fairseq.classification.run import run
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.masked_lm import text, trainings
from linformer_fairseq.masked_lm.results import decisive
from linformer_fairseq.recipe.course import run_training
from linformer_fairseq.recipe.study_settings import store
from tests.classification.made import examples, pretraining, write_set
from tests.fairseq_commands import ROOT, environment
from tests.masked_lm.made_text import write_books

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive]
ARMS = ("transformer", "linformer")
PRETRAINED = {"transformer": "transformer-n32", "linformer": "linformer-n32-k8"}
SIZES = "--epochs 4 --batch-size 6 --lr 0.02 --dropout 0 --threads 1"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study of masked language models that has trained a Transformer and three Linformers."""
    books = write_books(tmp_path_factory.mktemp("books"))
    out = tmp_path_factory.mktemp("masked-lm")
    more = ("--ks", "4,8", "--sharings", "headwise,layerwise", "--", "--cpu")
    study = pretraining(books, out, "--arms", ",".join(ARMS), *more)
    files = text.find_files(books, [])
    store(out, decisive(study, text.digests(files)), text.PREPARED_FOLDERS, models="runs/*/*")
    with open(out / ".lock", "w") as lock:
        text.prepare(files, study.settings.vocabulary, out, 1, lock.fileno())
    for own in trainings.planned(study):
        arguments = trainings.training_arguments(own, study.settings, own.folder, study.settings.updates)
        run_training(own.name, own.folder, arguments, trainings.course(study.settings), 1, 1)
    return out


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sets")
    write_set(folder / "weather")
    return folder


def arguments(pretrained: Path, data: Path, out: Path, *more: str) -> list[str]:
    return ["--pretrained", str(pretrained), "--data", str(data), "--out", str(out), *SIZES.split(), *more]


@pytest.fixture(scope="module")
def finished(pretrained: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("classification") / "out"
    given = arguments(pretrained, data, out, "--seeds", "1,2", "--metrics", "f1", "--jobs", "2", "--", "--cpu")
    run(parse(given))
    return out


def results(out: Path) -> dict:
    return dict(json.loads((out / "results.json").read_text()))


def test_every_model_classifies_every_set(finished: Path) -> None:
    found = results(finished)
    keys = [(row["set"], row["arm"], row["seed"], row["pretraining_seed"]) for row in found["trainings"]]
    assert keys == [("weather", arm, seed, 1) for seed in (1, 2) for arm in ARMS]
    for row in found["trainings"]:
        assert [update for update, _ in row["curve"]] == [4, 8, 12, 16]
        # what fairseq found while it trained, in tenths
        assert row["dev"]["accuracy"] == pytest.approx(max(accuracy for _, accuracy in row["curve"]), abs=0.051)
    assert [row["seeds"] for row in found["differences"]] == [[1, 2]]
    assert found["sets"]["weather"]["test"]["texts"] == 9


def test_predictions_have_the_order_of_the_texts(finished: Path) -> None:
    for row in results(finished)["trainings"]:
        (folder,) = finished.glob(f"sets/weather/runs/{row['arm']}-n32*/seed-{row['seed']}")
        for split in ("dev", "test"):
            header, *lines = (folder / "predictions" / f"{split}.tsv").read_text().splitlines()
            labels, predicted = zip(*(line.split("\t") for line in lines), strict=True)
            assert header == "label\tpredicted"
            assert list(labels) == [label for label, _ in examples(split)]
            right = sum(map(str.__eq__, labels, predicted))
            assert row[split]["accuracy"] == pytest.approx(100 * right / len(labels))


def test_models_begin_with_the_pretrained_ones(pretrained: Path, finished: Path) -> None:
    for arm in ARMS:
        (log,) = finished.glob(f"sets/weather/runs/{arm}-n32*/seed-2/train.log")
        start = pretrained / "runs" / PRETRAINED[arm] / "seed-1" / "checkpoints" / "checkpoint_best.pt"
        assert f"loading pretrained model from {start}" in log.read_text()
    for row in results(finished)["trainings"]:
        command = row["command"]
        start = command[command.index("--finetune-from-model") + 1]
        assert (finished / start).is_file()
        assert not any(Path(part).is_absolute() for part in command)


def test_the_report_shows_it(finished: Path) -> None:
    report = (finished / "report.md").read_text()
    for section in ("Accuracy", "F1", "Sets", "Trainings", "Models", "Plots", "Commands"):
        assert report.count(f"## {section}\n") == 1
    written = {path: path.read_bytes() for path in (finished / "report.md", finished / "accuracy.png")}
    for path in written:
        path.unlink()
    write_report(finished)
    assert {path: path.read_bytes() for path in written} == written


def test_another_run_keeps_what_is_there(
    pretrained: Path, data: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = results(finished)
    run(parse(arguments(pretrained, data, finished, "--seeds", "2", "--arms", "linformer", "--", "--cpu")))
    assert capsys.readouterr().out.count("already done") == 3  # the text twice, and the training
    after = results(finished)
    assert after["trainings"] == [row for row in before["trainings"] if (row["arm"], row["seed"]) == ("linformer", 2)]
    other = before | {"trainings": [{**row, "seed": row["seed"] + 5} for row in before["trainings"]]}
    (finished / "other.json").write_text(json.dumps(other))
    merging = ("--seeds", "1,2", "--metrics", "f1", "--merge", str(finished / "other.json"), "--", "--cpu")
    run(parse(arguments(pretrained, data, finished, *merging)))
    found = results(finished)
    assert found["trainings"] == before["trainings"] + other["trainings"]
    assert [row["seeds"] for row in found["differences"]] == [[1, 2, 6, 7]]
    assert found["differences"][0]["mean"] == pytest.approx(before["differences"][0]["mean"])


def test_the_same_settings_and_texts_for_all_models(
    pretrained: Path, data: Path, finished: Path, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match="was made with fine-tuning epochs = 4, not 5: all models need the same"):
        run(parse(arguments(pretrained, data, finished, "--epochs", "5", "--", "--cpu")))
    dev = write_set(tmp_path / "weather") / "dev.tsv"
    dev.write_text("\n".join(dev.read_text().splitlines()[:-1]))
    with pytest.raises(UserError, match=r"weather was made with another dev\.tsv: all models need the same texts"):
        run(parse(arguments(pretrained, tmp_path, finished, "--", "--cpu")))
    for split in ("train", "dev", "test"):
        path = tmp_path / "weather" / f"{split}.tsv"
        path.write_text(path.read_text().replace("\tcalm", "\tstorm"))
    with pytest.raises(
        UserError, match=r"weather was made with labels = \['calm', 'rain'\], not \['rain', 'storm'\]: all"
    ):
        run(parse(arguments(pretrained, tmp_path, finished, "--", "--cpu")))


def test_the_folder_of_another_study_is_refused(pretrained: Path, data: Path) -> None:
    before = (pretrained / "study.json").read_text()
    with pytest.raises(UserError, match="holds other files than this study's"):
        run(parse(arguments(pretrained, data, pretrained, "--", "--cpu")))
    assert (pretrained / "study.json").read_text() == before


def test_a_killed_study_goes_on_where_it_was(pretrained: Path, data: Path, tmp_path: Path) -> None:
    own = ("--arms", "linformer", "--seeds", "1", "--epochs", "12", "--no-truncate", "--", "--cpu")
    command = [sys.executable, "-m", "linformer_fairseq.classification"]
    command += arguments(pretrained, data, tmp_path / "out", *own)
    folder = tmp_path / "out" / "sets" / "weather" / "runs" / "linformer-n32-k8" / "seed-1"
    with subprocess.Popen(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL) as process:
        deadline = time.monotonic() + 120
        while process.poll() is None and not any(folder.glob("checkpoints/*.pt")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert any(folder.glob("checkpoints/*.pt"))
    assert not (folder / "train.json").exists()
    subprocess.run(command, cwd=ROOT, env=environment(), check=True, stdout=subprocess.DEVNULL)
    (row,) = results(tmp_path / "out")["trainings"]
    assert row["updates"] == 48
    assert {update for update, _ in row["curve"]} <= set(range(4, 49, 4))  # a kill may lose lines of the log
    assert (folder / "train.log").read_text().count("loading pretrained model from") == 1


def test_another_linformer_stands_beside_linformer(
    pretrained: Path, data: Path, finished: Path, tmp_path: Path
) -> None:
    more = ("--arms", "transformer", "--ks", "4", "--sharings", "layerwise", "--seeds", "3", "--", "--cpu")
    run(parse(arguments(pretrained, data, tmp_path / "out", *more)))
    given = {row["arm"]: row["command"] for row in results(tmp_path / "out")["trainings"]}
    for arm, k, sharing in (("linformer-k4", "4", "headwise"), ("linformer-layerwise", "8", "layerwise")):
        command = given[arm]
        assert command[command.index("--linformer-k") + 1] == k
        assert command[command.index("--linformer-sharing") + 1] == sharing
    merged = str(tmp_path / "out" / "results.json")
    run(parse(arguments(pretrained, data, finished, "--seeds", "1", "--merge", merged, "--", "--cpu")))
    assert list(results(finished)["arms"]) == ["transformer", "linformer", "linformer-k4", "linformer-layerwise"]
    report = (finished / "report.md").read_text()
    assert "| Linformer, k = 4     |" in report
    assert "| Linformer, layerwise |" in report
    assert "k = 8 (unless a table says otherwise)" in report


def test_a_report_needs_results(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"results\.json is missing: run the study first"):
        run(parse(["--out", str(tmp_path), "--report-only"]))
