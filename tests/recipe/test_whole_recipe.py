"""examples/wmt14_en_de on a small mirror: run to its end, killed and rerun, repeated, extended, on two processes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from linformer_fairseq.recipe import pipeline
from linformer_fairseq.recipe.__main__ import main
from linformer_fairseq.recipe.logs import read_training
from tests.recipe.mirror import build_mirror
from tests.recipe.test_wmt14 import marked, training
from tests.recipe.test_worker import free_port

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "examples" / "wmt14_en_de"
MODEL = "transformer_tiny"
TINY = {
    "BPE_MERGES": "100",
    "ARCH": MODEL,
    "K": "2",
    "PROJECTION": "linear",
    "MAX_UPDATE": "20",
    "MAX_TOKENS": "300",
    "UPDATE_BATCHES": "2",
    "WARMUP_UPDATES": "10",
    "DROPOUT": "0",
    "VALIDATE_UPDATES": "4",
    "KEEP_CHECKPOINTS": "2",
    "AVERAGE": "2",
    "LENGTH_TOKENS": "256",
    "THREADS": "1",
}
SLUGS = ("transformer", "linformer-k2-encoder-cross-linear")
SEVERAL = {"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "127.0.0.1", "PROCESSES": "1"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not hasattr(torch.serialization, "add_safe_globals"),
        reason="the recipe averages checkpoints, which needs torch 2.4; the quickstart runs the same pipeline without",
    ),
]


@dataclass
class Finished:
    """A run that nothing disturbed."""

    out: Path
    server: Path
    said: str
    seconds: float


def start(script: str, server: Path, out: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start a script from a folder that is not the project's."""
    environment = {name: value for name, value in os.environ.items() if name not in ("WORLD_SIZE", *SEVERAL)}
    own = {"LINFORMER_VENV": sys.prefix, "DATA_DIR": str(out), "WMT_BASE_URL": server.as_uri()}
    return subprocess.Popen(
        [SCRIPTS / f"{script}.sh", *arguments],
        cwd=out.parent,
        env={**environment, **own, **TINY, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
    )


def finish(script: str, server: Path, out: Path, *arguments: str, **variables: str) -> str:
    process = start(script, server, out, *arguments, **variables)
    said, _ = process.communicate()
    assert process.returncode == 0, said[-3000:]
    return said


def in_process(
    capfd: pytest.CaptureFixture[str], script: str, server: Path, out: Path, *arguments: str, **variables: str
) -> tuple[int, str, str]:
    """What the script's command would return and say, without the seconds that a process takes to start.

    A stand-in for the virtual environment's Python tells what the script would have it do.
    """
    told = out.parent / "told"
    (told / "bin").mkdir(parents=True, exist_ok=True)
    (told / "bin" / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    (told / "bin" / "python").chmod(0o755)
    said = finish(script, server, out, *arguments, LINFORMER_VENV=str(told), **variables)
    module, *argv = said.splitlines()[1:]
    assert module == "linformer_fairseq.recipe"
    capfd.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        for name in {*SEVERAL} & {*variables}:
            patch.setenv(name, variables[name])
        return main(argv), *capfd.readouterr()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    folder = tmp_path_factory.mktemp("whole")
    build_mirror(folder / "mirror", training(300), marked(1000, 20), marked(2000, 12))
    began = time.monotonic()
    said = finish("compare", folder / "mirror", folder / "out")
    return Finished(folder / "out", folder / "mirror", said, time.monotonic() - began)


def binarised(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (out / "bin").iterdir()}


def test_everything_is_reported(finished: Finished) -> None:
    results = json.loads((finished.out / "results.json").read_text(encoding="utf-8"))
    names = ["Transformer", "Linformer k=2 (encoder,cross; linear)"]
    assert [model["model"] for model in results["models"]] == names
    for model in results["models"]:
        assert model["sentences"] == 12
        assert model["perplexity"] > 1
        assert model["parameters"] > 0
        assert model["precision"] == model["training_precision"] == "fp32"
        assert {"bleu", "compound_bleu", "chrf", "signature"} <= set(model)
        assert len(model["checkpoints"]) == 2
    for model in results["models"]:
        updates = [update for update, _ in model["validation_curve"]]
        assert updates == sorted(set(updates))
        assert updates[-1] == model["training_updates"]
    assert results["models"][0]["bleu_against_transformer"] is None
    assert {"difference", "low", "high", "p_value"} == set(results["models"][1]["bleu_against_transformer"])
    assert {row["model"] for row in results["lengths"]["rows"]} == set(names)
    assert {(row["length"], row["sentences"]) for row in results["lengths"]["rows"]} == {(256, 1)}
    report = (finished.out / "report.md").read_text(encoding="utf-8")
    for title in ("Model performance", "Training time", "Inference time", "Published by the study"):
        assert f"## {title}\n" in report
    performance = report.partition("## Model performance")[2].partition("## ")[0]
    assert all(f"| {name} " in performance for name in names)
    for plot in ("perplexity.png", "comparison.png", "lengths.png"):
        assert plot in report
        assert (finished.out / plot).read_bytes().startswith(b"\x89PNG")
    page = (finished.out / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") >= 3
    assert "(not comparable)" in page
    assert "the mean of the last 2 saved" in page
    assert "chrF" in finished.said
    assert "sentences/s" in finished.said


@pytest.mark.parametrize("slug", SLUGS)
def test_fairseq_is_given_the_settings_of_vaswani_et_al(finished: Finished, slug: str) -> None:
    """As its commands log them: the same for every model, where TINY does not say otherwise."""
    folder = finished.out / "models" / slug
    training = (folder / "train.log").read_text(encoding="utf-8")
    for setting in (
        "'optimizer': {'_name': 'adam', 'adam_betas': '(0.9, 0.98)',",
        "'lr_scheduler': {'_name': 'inverse_sqrt', 'warmup_updates': 10,",
        "'criterion': {'_name': 'label_smoothed_cross_entropy', 'label_smoothing': 0.1,",
        "'lr': [0.0007]",
        "'update_freq': [2]",
        "'max_tokens': 300,",
        "'max_update': 20,",
        " share_all_embeddings=True,",
        " dropout=0.0,",
    ):
        assert setting in training, setting
    translation = (folder / "test" / "generate.log").read_text(encoding="utf-8")
    for setting in ("'beam': 4,", "'lenpen': 0.6,", "'max_len_a': 1.0, 'max_len_b': 50,"):
        assert setting in translation, setting


def test_killed_at_five_random_moments(finished: Finished, tmp_path: Path) -> None:
    """Whatever step a kill meets, the binarised text is the same in the end, byte for byte, and the models learn alike.

    Not the same: `fairseq-fixed` shuffles sentences of equal length by the epoch that a process begins with, so that
    from epoch 2 on a training that goes on shares them out among its batches in another way.
    """
    out = tmp_path / "out"
    seed = time.time_ns()
    print(f"seed {seed}")  # for whoever meets a failure
    moments = random.Random(seed)
    latest, kills = finished.seconds / 2, 0
    while kills < 5:
        process = start("compare", finished.server, out)
        try:
            process.communicate(timeout=moments.uniform(0.5, latest))
            latest /= 2  # it came to its end before the kill
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
    finish("compare", finished.server, out)
    assert binarised(out) == binarised(finished.out)
    for slug in SLUGS:
        logs = [read_training((folder / "models" / slug / "train.log").read_text()) for folder in (out, finished.out)]
        killed, undisturbed = ({update: ppl for update, ppl in log.curve} for log in logs)
        assert killed == pytest.approx(undisturbed, rel=1e-2)
        assert [log.updates for log in logs] == [20, 20]
        assert logs[0].tokens in (None, pytest.approx(logs[1].tokens))
    assert not list(out.rglob("*.part"))

    files = {path: path.stat().st_mtime_ns for path in (out / "models").rglob("*") if path.name != ".lock"}
    files = {path: time for path, time in files.items() if path.is_file()}
    said = finish("compare", finished.server, out, "--k", "3", "--attention", "encoder")
    assert "Preparing the text: done before" in said
    assert "Training Transformer: done before" in said
    assert files == {path: path.stat().st_mtime_ns for path in files}
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    names = ["Transformer", "Linformer k=3 (encoder; linear)", "Linformer k=2 (encoder,cross; linear)"]
    assert [model["model"] for model in results["models"]] == names


def test_finished_models_are_shown_again(finished: Finished, capfd: pytest.CaptureFixture[str]) -> None:
    status, said, _ = in_process(capfd, "evaluate", finished.server, finished.out, f"linformer_{MODEL}", "--k", "2")
    assert status == 0
    assert "Linformer k=2 (encoder,cross; linear): perplexity" in said
    assert "Transformer:" not in said
    for score in ("sacreBLEU", "compounds split: BLEU", "chrF", "tokens/s"):
        assert score in said


def test_the_report_does_not_wait_for_times_that_may_not_fit_into_memory(
    finished: Finished, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(*_: object) -> bool:
        assert (finished.out / "report.html").exists()
        raise MemoryError

    monkeypatch.setattr(pipeline, "measure_lengths", measure)
    (finished.out / "report.html").unlink()
    status, _, error = in_process(capfd, "compare", finished.server, finished.out)
    assert (status, error) == (1, "error: The memory is full: give the command more of it, or less to do at a time.\n")


@pytest.mark.parametrize(
    ("script", "arguments", "variables", "said"),
    [
        ("compare", [], {"LR": "0.1"}, "lr = 0.0007, not 0.1"),
        ("prepare", [], {"BPE_MERGES": "90"}, "bpe_merges = 100, not 90"),
        ("evaluate", [MODEL], {"BEAM": "3"}, "beam = 4, not 3"),
        (
            "evaluate",
            [f"linformer_{MODEL}", "--k", "3"],
            {},
            "k=3 (encoder,cross; linear) has not been trained to its end",
        ),
        ("train", [MODEL], {"PROCESSES": "3"}, "2 batches an update cannot be shared evenly by 3 processes"),
        ("train", [MODEL], {"DATA_DIR": "other"}, "prepare the text first"),
        ("train", ["lstm"], {}, "lstm is not a translation Transformer of fairseq's that has a Linformer"),
        ("compare", [], {"AVERAGE": "3"}, "--average 3 asks for more checkpoints than --keep-checkpoints 2"),
        ("compare", [], {"MAX_UPDATE": "0"}, "--epochs and --updates are both 0"),
        ("compare", [], {"LENGTH_TOKENS": "100"}, "--length-tokens 100 is less than any of --lengths"),
        ("train", [MODEL, "--k", "2"], {}, f"--k and --attention mean nothing: name linformer_{MODEL}"),
        ("train", [MODEL], {"BPE_MERGES": "90"}, "bpe_merges = 100, not 90"),
        ("compare", [], {"PRECISION": "fp16"}, "precision = 'fp32', not 'fp16'"),
        ("compare", [], {"PRECISION": "fp16", "DATA_DIR": "other"}, "--precision fp16 needs a GPU"),
        ("compare", ["--", "--max-tokens", "9"], {}, "--max-tokens is set by the recipe"),
        ("train", [MODEL, "--", "--device-id", "1"], {}, "--device-id is set by the worker"),
        ("compare", [], SEVERAL, "several machines train one model at a time and nothing else: use train.sh"),
        ("train", [MODEL, "--jobs", "2"], SEVERAL, "several machines train one model at a time"),
        ("train", [MODEL], {**SEVERAL, "DATA_DIR": "other"}, "prepare the text first, on one machine"),
    ],
)
def test_what_is_refused(
    finished: Finished,
    capfd: pytest.CaptureFixture[str],
    script: str,
    arguments: list[str],
    variables: dict[str, str],
    said: str,
) -> None:
    """In one sentence, and nothing is touched."""
    before = {path: path.stat().st_mtime_ns for path in finished.out.rglob("*") if path.name != ".lock"}
    if "DATA_DIR" in variables:
        variables = {**variables, "DATA_DIR": str(finished.out.parent / variables["DATA_DIR"])}
    status, _, error = in_process(capfd, script, finished.server, finished.out, *arguments, **variables)
    assert status == 2
    assert "Traceback" not in error
    assert said in error.rpartition("error: ")[2]
    assert error.rpartition("error: ")[2].count("\n") == 1
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_train_wants_a_model(finished: Finished) -> None:
    process = start("train", finished.server, finished.out)
    said, _ = process.communicate()
    assert process.returncode == 2
    assert "name the model first" in said
    assert "--default-k" in finish("train", finished.server, finished.out, "--help")


def test_two_machines_learn_what_one_does(finished: Finished, tmp_path: Path) -> None:
    """The baseline again, each update's two batches computed by a process each, on what could be two machines."""
    out = tmp_path / "out"
    shutil.copytree(finished.out, out, ignore=shutil.ignore_patterns("models", "results.json", "report.*"))
    common = {**SEVERAL, "MASTER_PORT": str(free_port())}
    machines = [start("train", finished.server, out, MODEL, **{**common, "NODE_RANK": rank}) for rank in ("0", "1")]
    for machine in machines:
        said, _ = machine.communicate()
        assert machine.returncode == 0, said[-3000:]
    check_same_training(out, finished.out)
    assert "as rank 1" in (out / "machines" / "1" / "transformer" / "train.log").read_text(encoding="utf-8")


def test_two_processes_learn_what_one_does(finished: Finished, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(finished.out, out, ignore=shutil.ignore_patterns("models", "results.json", "report.*"))
    finish("train", finished.server, out, MODEL, PROCESSES="2", THREADS="3")
    check_same_training(out, finished.out)


def check_same_training(two_processes: Path, one_process: Path) -> None:
    logs = [folder / "models" / "transformer" / "train.log" for folder in (two_processes, one_process)]
    two, one = (read_training(log.read_text(encoding="utf-8")) for log in logs)
    assert two.updates == one.updates
    assert two.tokens == pytest.approx(one.tokens)
    losses = [{update: values["valid_loss"] for update, values in log.validations.items()} for log in (two, one)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    facts = json.loads((two_processes / "models" / "transformer" / "train.json").read_text(encoding="utf-8"))
    assert (facts["processes"], facts["threads"]) == (2, 1)
