"""The quickstart on a handful of sentences, and how it ends when something else ends it."""

import json
import shlex
import signal
from itertools import product
from pathlib import Path

import pytest
import torch

from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.length_timing import ENCODER, TRAINING, WHOLE, Lengths
from tests.recipe.scripts import recipe_arguments, start

RUN = "quickstart/run"
TINY = shlex.split(
    "--made-train 120 --made-test 6 --bpe-merges 60 --layers 1 --dim 16 --heads 2 --ffn-dim 16 --epochs 2 "
    "--max-tokens 256 --validate-updates 10 --warmup-updates 10 --beam 2 --threads 1 --k 2 "
    "--length-tokens 64 --lengths 32,64,128 --length-k 4 --length-repeats 1"
)
WMT14_RUNS = hasattr(torch.serialization, "add_safe_globals")
"""Where checkpoints can be averaged, the recipe for WMT14 is the one that always goes through all steps."""


def test_what_it_trains(tmp_path: Path) -> None:
    run = parse(recipe_arguments(RUN, tmp_path / "out", "--seed", "7"))
    names = [f"{family} k={k} (encoder,cross)" for family in ("Linformer", "Two levels") for k in (8, 16)]
    assert [model.name for model in run.models] == ["Transformer", *names]
    assert (run.step, run.settings.training.seed) == ("compare", 7)
    assert run.settings.text.dataset.name == "The synthetic corpus"
    assert run.lengths == Lengths(4096, [256, 512, 1024, 2048, 4096], 3, [64], training=True)


@(pytest.mark.exhaustive if WMT14_RUNS else pytest.mark.slow)
def test_it_reports_on_all_its_models(tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(RUN, out, "--out", str(out), *TINY)
    said, _ = process.communicate()
    assert process.returncode == 0, said
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    names = ["Transformer", "Linformer k=2 (encoder,cross)", "Two levels k=2 (encoder,cross)"]
    assert [model["model"] for model in results["models"]] == names
    for model in results["models"]:
        assert model["sentences"] == 6
        assert model["checkpoints"] == ["checkpoint_best.pt"]
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "made by the recipe's own grammar" in report
    assert "Published by the study" not in report
    timed = {(row["model"], row["part"], row["length"]) for row in results["lengths"]["rows"] if row["seconds"]}
    names += [f"{kind} k=4 (encoder,cross,decoder)" for kind in ("Linformer", "Two levels")]
    assert timed == set(product(names, (ENCODER, WHOLE, TRAINING), (32, 64)))
    assert "](lengths.png)" in report


@pytest.mark.slow
@pytest.mark.exhaustive
def test_first_failure_ends_the_other_trainings(tmp_path: Path) -> None:
    """Nobody waits for the long training beside it to learn of it."""
    out = tmp_path / "out"
    missing = f"--linformer-args=--finetune-from-model {tmp_path / 'nowhere.pt'}"
    process = start(RUN, out, "--out", str(out), *TINY, "--jobs", "2", "--epochs", "100000", missing)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert "fairseq-train failed for Linformer k=2" in said.strip().splitlines()[-1]
    assert not (out / "models" / "transformer" / "train.json").exists()


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_interrupt_of_the_recipe_alone_ends_its_trainings(tmp_path: Path, jobs: str) -> None:
    """As a notebook or an editor sends it; Ctrl-C would reach the trainings too."""
    process = start(RUN, tmp_path / "out", "--out", str(tmp_path / "out"), *TINY, "--jobs", jobs, "--epochs", "100000")
    assert any("validation perplexity" in line for line in process.stdout)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "goes on from here" in said
