"""examples/wmt14_en_de on a small mirror: run to its end, killed and rerun, repeated, extended, on two processes."""

import json
import os
import random
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import pipeline
from linformer_fairseq.recipe.__main__ import main
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.logs import read_training
from linformer_fairseq.recipe.prepare import _check_binarised
from tests.recipe import scripts
from tests.recipe.mirror import build_mirror, marked, training

MODEL, TWO_LEVEL = "transformer_tiny", "two_level_transformer_tiny"
SLUGS = {MODEL: "transformer", TWO_LEVEL: "linformer-k2-encoder-cross-two-level"}
NAMES = ["Transformer", "Two levels k=2 (encoder,cross)"]
TINY = {
    "BPE_MERGES": "100",
    "ARCH": MODEL,
    "K": "2",
    "PROJECTION": "two-level",
    "MAX_UPDATE": "8",
    "MAX_TOKENS": "300",
    "UPDATE_BATCHES": "2",
    "WARMUP_UPDATES": "4",
    "DROPOUT": "0",
    "VALIDATE_UPDATES": "2",
    "KEEP_CHECKPOINTS": "2",
    "AVERAGE": "2",
    "LENGTH_TOKENS": "256",
    "THREADS": "1",
}
SEVERAL = {**scripts.MACHINES, "PROCESSES": "1"}
SEED = "LINFORMER_TEST_SEED"
"""The environment variable that repeats a failure."""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(torch.serialization, "add_safe_globals"),
        reason="the recipe averages checkpoints, which needs torch 2.4; the quickstart runs the same pipeline without",
    ),
]


def environment(server: Path, out: Path, variables: dict[str, str]) -> dict[str, str]:
    return {"DATA_DIR": str(out), "WMT_BASE_URL": server.as_uri(), **TINY, **variables}


def start(script: str, server: Path, out: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return scripts.start(f"wmt14_en_de/{script}", out, *arguments, **environment(server, out, variables))


def finish(script: str, server: Path, out: Path, *arguments: str, **variables: str) -> str:
    return scripts.finish(f"wmt14_en_de/{script}", out, *arguments, **environment(server, out, variables))


def arguments_of(script: str, server: Path, out: Path, *arguments: str, **variables: str) -> list[str]:
    return scripts.recipe_arguments(f"wmt14_en_de/{script}", out, *arguments, **environment(server, out, variables))


@dataclass
class Finished:
    """A run that nothing disturbed."""

    out: Path
    server: Path
    said: str
    seconds: float

    def copy_text(self, to: Path) -> Path:
        """Copies all but the models and the report."""
        return Path(shutil.copytree(self.out, to, ignore=shutil.ignore_patterns("models", "results.json", "report.*")))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("whole")
    build_mirror(folder / "mirror", training(120), marked(1000, 6), marked(2000, 6))
    began = time.monotonic()
    said = finish("compare", folder / "mirror", folder / "out")
    return Finished(folder / "out", folder / "mirror", said, time.monotonic() - began)


def binarised(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "bin").iterdir()}


def test_everything_is_reported(finished: Finished) -> None:
    results = json.loads((finished.out / "results.json").read_text(encoding="utf-8"))
    assert [model["model"] for model in results["models"]] == NAMES
    for model in results["models"]:
        assert model["sentences"] == 6
        assert model["perplexity"] > 1
        assert model["parameters"] > 0
        assert model["precision"] == model["training_precision"] == "fp32"
        assert {"bleu", "compound_bleu", "chrf", "signature"} <= set(model)
        assert len(model["checkpoints"]) == 2
        updates = [update for update, _ in model["validation_curve"]]
        assert updates == sorted(set(updates))
        assert updates[-1] == model["training_updates"]
    assert results["models"][0]["bleu_against_transformer"] is None
    assert {"difference", "low", "high", "p_value"} == set(results["models"][1]["bleu_against_transformer"])
    timed = [(row["model"], row["length"], row["sentences"]) for row in results["lengths"]["rows"]]
    assert sorted(set(timed)) == [(name, 256, 1) for name in NAMES]
    report = (finished.out / "report.md").read_text(encoding="utf-8")
    for title in ("Model performance", "Training time", "Inference time", "Published by the study"):
        assert f"## {title}\n" in report
    assert f"Corpus: WMT14 from {finished.server.as_uri()}, validated on newstest2013." in report
    assert all(f"| {name} " in report for name in NAMES)
    for plot in ("perplexity.png", "comparison.png", "lengths.png"):
        assert plot in report
        assert (finished.out / plot).read_bytes().startswith(b"\x89PNG")
    page = (finished.out / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") >= 3
    assert "the mean of the last 2 saved" in page
    for shown in ("sacreBLEU", "compounds split: BLEU", "chrF", "tokens/s"):
        assert finished.said.count(shown) == 2


def test_fairseq_is_given_the_settings_of_vaswani_et_al(finished: Finished) -> None:
    """As its commands log them: the same for every model, where TINY does not say otherwise."""
    for arch, slug in SLUGS.items():
        folder = finished.out / "models" / slug
        training = (folder / "train.log").read_text(encoding="utf-8")
        for setting in (
            f" arch='{arch}'",
            "'optimizer': {'_name': 'adam', 'adam_betas': '(0.9, 0.98)',",
            "'lr_scheduler': {'_name': 'inverse_sqrt', 'warmup_updates': 4,",
            "'criterion': {'_name': 'label_smoothed_cross_entropy', 'label_smoothing': 0.1,",
            "'lr': [0.0007]",
            "'update_freq': [2]",
            "'max_tokens': 300,",
            "'max_update': 8,",
            " share_all_embeddings=True,",
            " dropout=0.0,",
        ):
            assert setting in training, setting
        translation = (folder / "test" / "generate.log").read_text(encoding="utf-8")
        for setting in ("'beam': 4,", "'lenpen': 0.6,", "'max_len_a': 1.0, 'max_len_b': 50,"):
            assert setting in translation, setting


def test_lines_that_binarising_lost_are_noticed(finished: Finished, tmp_path: Path) -> None:
    for lang in ("en", "de"):
        lines = (finished.out / "bpe" / f"test.{lang}").read_text(encoding="utf-8")
        (tmp_path / f"test.{lang}").write_text(lines, encoding="utf-8")
        _check_binarised(finished.out / "bpe" / "test", ("en", "de"), finished.out / "bin", "test")
        (tmp_path / f"test.{lang}").write_text(lines + "one more\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"has made 6 of the 7 lines of test\.en"):
        _check_binarised(tmp_path / "test", ("en", "de"), finished.out / "bin", "test")


def test_what_the_scripts_ask_for(text_folder: Path, tmp_path: Path) -> None:
    """The base model by default, on WMT14 or one's own text."""
    unset = dict.fromkeys(set(TINY) - {"THREADS"}, "")
    run = parse(arguments_of("compare", tmp_path, tmp_path / "out", **unset))
    names = [f"{family} k={k} (encoder,cross)" for family in ("Linformer", "Two levels") for k in (32, 64)]
    assert [model.name for model in run.models] == ["Transformer", *names]
    training = run.settings.training
    assert (training.arch, training.updates, training.update_batches) == ("transformer_wmt_en_de", 100_000, 8)
    arguments = arguments_of("prepare", tmp_path, tmp_path / "out", TEXT_DIR=str(text_folder))
    assert parse(arguments).settings.text.dataset.folder == text_folder
    assert arguments_of("train", tmp_path, tmp_path / "out", "--help") == ["train", "--help"]
    process = start("train", tmp_path, tmp_path / "out")
    said, _ = process.communicate()
    assert process.returncode == 2
    assert "name the model first" in said


def seeded() -> random.Random:
    seed = os.environ.get(SEED) or str(random.SystemRandom().randrange(10**9))
    print(f"{SEED}={seed}")  # pytest shows it where the test fails
    return random.Random(seed)


def check_same_curve(finished: Finished, out: Path, slug: str) -> None:
    """Not the same to the last digit: `fairseq-fixed` shuffles sentences of equal length by the epoch that a process
    begins with, so that from epoch 2 on a training that goes on shares them out among its batches in another way."""
    logs = [read_training((folder / "models" / slug / "train.log").read_text()) for folder in (out, finished.out)]
    killed, undisturbed = (dict(log.curve) for log in logs)
    assert killed == pytest.approx(undisturbed, rel=1e-2)
    assert [log.updates for log in logs] == [8, 8]
    assert logs[0].tokens in (None, pytest.approx(logs[1].tokens))


def test_a_training_killed_at_a_random_moment_goes_on(finished: Finished, tmp_path: Path) -> None:
    out = finished.copy_text(tmp_path / "out")
    process = start("train", finished.server, out, TWO_LEVEL)
    validations = (line for line in process.stdout if "validation perplexity" in line)
    for _ in range(seeded().randint(2, 3)):  # after the second, the checkpoint of the first has been saved
        next(validations)
    process.kill()
    process.communicate()
    assert "from where it stopped" in finish("train", finished.server, out, TWO_LEVEL)
    check_same_curve(finished, out, SLUGS[TWO_LEVEL])


@pytest.mark.exhaustive
def test_killed_at_five_random_moments(finished: Finished, tmp_path: Path) -> None:
    """Whatever step is killed, the binarised text is the same in the end, byte for byte, and the models learn alike."""
    out = tmp_path / "out"
    moments, latest, kills = seeded(), finished.seconds / 2, 0
    while kills < 5:
        process = start("compare", finished.server, out)
        try:
            process.communicate(timeout=moments.uniform(0.5, latest))
            latest /= 2  # it came to its end before the kill
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    finish("compare", finished.server, out)
    assert not list(out.rglob("*.part"))
    assert binarised(out) == binarised(finished.out)
    for slug in SLUGS.values():
        check_same_curve(finished, out, slug)


@pytest.mark.exhaustive
def test_a_finished_folder_takes_another_model(finished: Finished, tmp_path: Path) -> None:
    out = Path(shutil.copytree(finished.out, tmp_path / "out"))
    files = {path: path.stat().st_mtime_ns for path in (out / "models").rglob("*") if path.is_file()}
    said = finish("compare", finished.server, out, "--k", "3", "--attention", "encoder", "--projection", "linear")
    assert "Preparing the text: already done" in said
    assert "Training Transformer: already done" in said
    assert all(path.stat().st_mtime_ns == time for path, time in files.items() if path.name != ".lock")
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    assert [model["model"] for model in results["models"]] == [NAMES[0], "Linformer k=3 (encoder)", NAMES[1]]


def test_the_report_does_not_wait_for_times_that_may_not_fit_into_memory(
    finished: Finished, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> bool:
        assert (finished.out / "report.html").exists()
        raise MemoryError

    monkeypatch.setattr(pipeline, "measure_lengths", measure)
    (finished.out / "report.html").unlink()
    assert main(arguments_of("compare", finished.server, finished.out)) == 1
    said, error = capfd.readouterr()
    assert error == "error: The memory is full: give the command more of it, or less to do at a time.\n"
    assert f"{NAMES[1]}: perplexity" in said  # finished models are shown again


@pytest.mark.parametrize(
    ("script", "arguments", "variables", "said"),
    [
        ("train", [MODEL], {"DATA_DIR": "other"}, "prepare the text first"),
        ("train", [MODEL, "--jobs", "2"], SEVERAL, "several machines train one model at a time"),
        ("train", [MODEL], {**SEVERAL, "DATA_DIR": "other"}, "prepare the text first, on one machine"),
        ("evaluate", [MODEL], {"BEAM": "3"}, "beam = 4, not 3"),
        ("evaluate", [TWO_LEVEL, "--k", "3"], {}, "Two levels k=3 (encoder,cross) has not been trained to its end"),
        ("compare", [], SEVERAL, "several machines train one model at a time and nothing else: use train.sh"),
    ],
)
def test_what_is_refused(
    finished: Finished,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    script: str,
    arguments: list[str],
    variables: dict[str, str],
    said: str,
) -> None:
    """In one sentence, and nothing is touched."""
    before = {path: path.stat().st_mtime_ns for path in finished.out.rglob("*") if path.name != ".lock"}
    if "DATA_DIR" in variables:
        variables = {**variables, "DATA_DIR": str(finished.out.parent / variables["DATA_DIR"])}
    argv = arguments_of(script, finished.server, finished.out, *arguments, **variables)
    for name in {*SEVERAL} & {*variables}:
        monkeypatch.setenv(name, variables[name])
    capfd.readouterr()
    assert main(argv) == 2
    error = capfd.readouterr().err
    assert "Traceback" not in error
    assert said in error.rpartition("error: ")[2]
    assert error.rpartition("error: ")[2].count("\n") == 1
    assert before == {path: path.stat().st_mtime_ns for path in before}


@pytest.mark.exhaustive
def test_two_machines_learn_what_one_does(finished: Finished, tmp_path: Path) -> None:
    """The baseline again, each update's two batches computed by a process each, on what could be two machines."""
    out = finished.copy_text(tmp_path / "out")
    port = str(scripts.free_port())
    ranks = [{**SEVERAL, "MASTER_PORT": port, "NODE_RANK": rank, "THREADS": "2"} for rank in ("0", "1")]
    processes = [start("train", finished.server, out, MODEL, **rank) for rank in ranks]
    for process in processes:
        said, _ = process.communicate()
        assert process.returncode == 0, said[-3000:]
    assert "as rank 1" in (out / "machines" / "1" / "transformer" / "train.log").read_text(encoding="utf-8")
    logs = [folder / "models" / "transformer" / "train.log" for folder in (out, finished.out)]
    two, one = (read_training(log.read_text(encoding="utf-8")) for log in logs)
    assert two.updates == one.updates
    assert two.tokens == pytest.approx(one.tokens)
    losses = [{update: values["valid_loss"] for update, values in log.validations.items()} for log in (two, one)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    facts = json.loads((out / "models" / "transformer" / "train.json").read_text(encoding="utf-8"))
    assert (facts["processes"], facts["threads"]) == (2, 2)
