"""The study from end to end, in a tiny size, and its refusals."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq import options

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import LinformerConfig
from linformer_fairseq.modules import CausalTwoLevelAttention, TwoLevelAttention
from linformer_fairseq.quality.arguments import parse
from linformer_fairseq.quality.run import write_report
from linformer_fairseq.quality.variants import CAUSAL_WIDTH, VARIANTS
from linformer_fairseq.recipe.flags import check_flags
from linformer_fairseq.recipe.train import training_arguments
from tests.fairseq_commands import ROOT, run_module

AVERAGE = 2 if hasattr(torch.serialization, "add_safe_globals") else 0  # needs torch 2.4
BOTH = ["--variants", "transformer,two-level-all", "--seeds", "2"]
TURNED = {
    "encoder,cross": "encoder,cross",
    "encoder,cross,decoder": "encoder,cross,decoder",
    "linear-decoder": "encoder,cross,decoder",
}
"""The models that examples/quality/convert.sh makes, and which of their attention it converts."""


def arguments(text: Path, out: Path, *more: object) -> list[str]:
    """The command line of a tiny study; `more` overrides."""
    sizes = (
        "--layers 1 --dim 16 --heads 2 --ffn-dim 16 --bpe-merges 10 --epochs 1 --max-tokens 200 --validate-updates 1 "
        f"--average {AVERAGE} --k 4 --warmup-updates 2"
    )
    return list(map(str, ["--data", text, "--out", out, *sizes.split(), *more]))


@pytest.fixture(scope="module")
def begun(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study with one variant, without the Transformer."""
    out = tmp_path_factory.mktemp("study")
    run_module("linformer_fairseq.quality", *arguments(text, out, "--variants", "two-level-all", "--seeds", 2)).ok()
    return out


def bucket_sizes(begun: Path, subset: str) -> list[int]:
    lengths = [len(line.split()) + 1 for line in (begun / f"text/bpe/{subset}.en").read_text().splitlines()]
    sizes = [sum(low <= n <= high for n in lengths) for low, high in ((1, 4), (5, 8), (9, 99))]
    return [size for size in sizes if size]


@pytest.mark.slow
def test_a_study_goes_on_and_is_reported(text: Path, begun: Path) -> None:
    folder = begun / "runs/two-level-all-k4/seed-2"
    links = {path: path.lstat().st_mtime_ns for path in folder.iterdir() if path.is_symlink()}
    assert {path.name: path.readlink() for path in links} == {
        name: Path("../../../text", name) for name in ("bin", "bpe", "raw", "tok")
    }
    train = folder / "models/linformer-k4-encoder-cross-decoder/train.json"
    command = json.loads(train.read_text())["command"]
    for flag, value in (
        ("--arch", "two_level_transformer"),
        ("--seed", "2"),
        ("--linformer-projection", "two-level"),
        ("--linformer-exact-below", "0"),
        ("--linformer-decoder-k", "512"),
    ):
        assert command[command.index(flag) + 1] == value
    report = (begun / "report.md").read_text()
    assert "two levels (with decoder), k = 4" in report
    assert "## Plots" not in report

    said = run_module("linformer_fairseq.quality", *arguments(text, begun, *BOTH)).ok()
    assert said.count("already done") == 3  # the text, a training, a translation
    # a training that is under way finds its text
    assert {path: path.lstat().st_mtime_ns for path in folder.iterdir() if path.is_symlink()} == links
    rows = json.loads((begun / "results.json").read_text())["results"]
    assert [(row["variant"], row["k"], row["seed"]) for row in rows] == [
        ("transformer", None, 2),
        ("two-level-all", 4, 2),
    ]
    for row in rows:
        assert row["perplexity"] > 1
        assert [bucket["sentences"] for bucket in row["by_length"]] == bucket_sizes(begun, "valid")
        assert set(row["entropy"]) == {"encoder", "cross", "decoder"}
    report = (begun / "report.md").read_text()
    translates = f"the mean of its last {AVERAGE} saves" if AVERAGE else "its best save"
    assert f"translated with {translates} and beam 4. Each has one seed (2)" in report
    assert "## The test set" not in report
    assert {path.name for path in begun.glob("*.png")} == {"valid.png"}

    refused = run_module("linformer_fairseq.quality", *arguments(text, begun, *BOTH, "--dropout", 0.5))
    assert "was made with dropout = " in refused.sentence()
    written = {name: (begun / name).read_bytes() for name in ("report.md", "valid.png")}
    for name in written:
        (begun / name).unlink()
    run_module("linformer_fairseq.quality", "--out", begun, "--report-only").ok()
    assert {name: (begun / name).read_bytes() for name in written} == written


def test_the_documented_report_is_that_of_its_results(tmp_path: Path) -> None:
    stored = ROOT / "docs/quality"
    (tmp_path / "results.json").write_bytes((stored / "results.json").read_bytes())
    write_report(tmp_path)
    assert (tmp_path / "report.md").read_text() == (stored / "report.md").read_text()
    assert {path.name for path in tmp_path.glob("*.png")} == {"valid.png", "test.png"}
    found = json.loads((tmp_path / "results.json").read_text())
    found["results"] = [row for row in found["results"] if row["k"]]  # nothing to compare with
    (tmp_path / "results.json").write_text(json.dumps(found))
    write_report(tmp_path)
    assert not list(tmp_path.glob("*.png"))
    del found["differences"]  # as an older version left it
    (tmp_path / "results.json").write_text(json.dumps(found))
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(UserError, match="run the study without --report-only first"):
            write_report(folder)


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(not AVERAGE, reason="converting needs torch 2.4")
def test_the_test_set_and_the_conversion_recipe(text: Path, begun: Path) -> None:
    """The test set is translated, and what is trained converted, fine-tuned, translated and scored; nothing twice."""
    assert (
        "Translating the test set with"
        in run_module("linformer_fairseq.quality", *arguments(text, begun, *BOTH, "--test")).ok()
    )
    rows = json.loads((begun / "results.json").read_text())["results"]
    assert [row["subset"] for row in rows] == ["valid", "valid", "test", "test"]
    assert [bucket["sentences"] for bucket in rows[2]["by_length"]] == bucket_sizes(begun, "test")
    assert "## The test set" in (begun / "report.md").read_text()
    assert {path.name for path in begun.glob("*.png")} == {"valid.png", "test.png"}

    def convert(tune: str) -> str:
        settings = {"STUDY": begun, "SEEDS": 2, "K": 4, "THREADS": 1, "TUNE": tune, "LINFORMER_VENV": sys.prefix}
        environment = os.environ | {name: str(value) for name, value in settings.items()}
        done = subprocess.run([ROOT / "examples/quality/convert.sh"], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "tuned" not in convert(tune="")
    said = convert(tune="1")
    *_, table = said.rpartition("seed 2, k = 4, valid set:")
    folder = begun / "converted/k4/seed-2"
    for name in ("transformer", *TURNED, *(f"{name}-tuned" for name in TURNED)):
        assert len((folder / "valid" / name).read_text().splitlines()) == 12
        assert re.search(f"/{name} .*[0-9]", table)
    for name, places in TURNED.items():
        before, after = (
            torch.load(folder / path, weights_only=True) for path in (f"{name}.pt", f"{name}-tuned/checkpoint_last.pt")
        )
        settings = [vars(state["cfg"]["model"]) for state in (before, after)]
        of_linformer = [{key: value for key, value in s.items() if key.startswith("linformer_")} for s in settings]
        assert of_linformer[0] == of_linformer[1]
        assert of_linformer[0]["linformer_attention"] == places
        assert before["model"].keys() == after["model"].keys()
        assert any(not torch.equal(weight, after["model"][key]) for key, weight in before["model"].items())
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert said.endswith(convert(tune="1"))
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == kept


def test_what_is_asked_for_twice_is_done_once(text: Path, tmp_path: Path) -> None:
    asked = ["--variants", "linformer,transformer,linformer", "--seeds", "2,1,2", "--k", "4,4"]
    study = parse(arguments(text, tmp_path, *asked))
    assert [str(training.out.relative_to(tmp_path)) for training in study.trainings] == [
        f"runs/{folder}/seed-{seed}" for seed in (2, 1) for folder in ("linformer-k4", "transformer")
    ]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--variants", "magic"], "'magic' is not a variant: choose from transformer"),
        (["--seed", "3"], "--seed is set by the study: use --seeds and --variants"),
        (["--linformer-args=--linformer-k 3"], "--linformer-args is set by the study"),
        (["--k", "0"], "is not a whole number from 1 on"),
        (["--magic"], "unrecognized arguments: --magic"),
        (["train"], "train is a step of the recipe's: the study always does all of them"),
    ],
)
def test_refusals(more: list[str], said: str, text: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=said):
        parse(arguments(text, tmp_path / "out", *more))
    assert not (tmp_path / "out").exists()


def test_every_variant_can_be_trained(text: Path, tmp_path: Path) -> None:
    study = parse(["--data", str(text), "--out", str(tmp_path), "--variants", ",".join(VARIANTS), "--k", "8"])
    for training in study.trainings[: len(VARIANTS)]:  # those of the first seed
        check_flags(training.model, training.settings, training.out)


def test_two_levels_close_slots_on_sentences(text: Path, tmp_path: Path) -> None:
    """A study of short sentences would show nothing of two levels if they attended to these in full."""
    names = [name for name, variant in VARIANTS.items() if variant.projection == "two-level"]
    study = parse(["--data", str(text), "--out", str(tmp_path), "--variants", ",".join(names), "--k", "8"])
    for training in study.trainings[: len(names)]:
        arguments = training_arguments(training.model, training.settings, training.out, training.out, freq=1)
        config = LinformerConfig.from_namespace(
            options.parse_args_and_arch(options.get_training_parser(), input_args=arguments)
        )
        assert config.places == set(training.variant.attention.split(","))
        for place in config.places:
            attention = config.attention(place, 1, 2, 1024)[0](
                8, 2, self_attention=place != "cross", encoder_decoder_attention=place == "cross"
            )
            if isinstance(attention, TwoLevelAttention):
                sizes = attention.rule.sizes(16)
                assert sizes.windows(16) == 8 > sizes.opened
            elif isinstance(attention, CausalTwoLevelAttention):
                assert attention.sizes == (CAUSAL_WIDTH, 3, CAUSAL_WIDTH)
                assert attention.exact < 10
            else:
                assert training.variant.name == "two-level-linear"
