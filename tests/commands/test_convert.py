"""A trained Transformer, converted by the command, in fairseq's own commands."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from tests.fairseq_commands import (
    ALL_PLACES,
    PAPER,
    TWO_LEVELS,
    Result,
    generate_arguments,
    hypotheses,
    run,
    run_module,
    same_hypotheses,
    train_arguments,
    valid_losses,
    validate_arguments,
)

needs_torch = pytest.mark.skipif(
    not hasattr(torch.serialization, "add_safe_globals"), reason="converting needs torch 2.4"
)
pytestmark = pytest.mark.slow


def run_convert(*arguments: object) -> Result:
    return run_module("linformer_fairseq.convert", *arguments)


@needs_torch
def test_translates_and_validates_as_before(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """Wherever a sentence has no more tokens than slots; the report says so too."""
    out, report = tmp_path / "linformer.pt", tmp_path / "report"
    flags = ["--linformer-k", 16, *TWO_LEVELS]
    said = run_convert(trained_transformer, out, *flags, "--data", data / "bin", "--report", report).ok()
    assert f"The Linformer is in {out}." in said
    assert {path.name for path in report.iterdir()} == {"report.md", "conversion.png"}
    text = (report / "report.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if " tokens " in line]
    assert [row[0] for row in rows[:2]] == ["1 to 8 tokens", "9 to 16 tokens"]
    for row in rows[:2]:
        assert row[2] == row[3]
        assert (float(row[4]), row[6]) == (0.0, "100.0%")
        assert float(row[5]) < 1e-4
    assert float(rows[2][4]) > 0

    before, after = (
        hypotheses(run("generate", *generate_arguments(data, checkpoint)).ok())
        for checkpoint in (trained_transformer, out)
    )
    assert len(before) == len(after) == 30
    lengths = [len(line.split()) + 1 for line in (data / "test.en").read_text().splitlines()]
    short = [number for number, length in enumerate(lengths) if length <= 16]
    same_hypotheses({number: before[number] for number in short}, {number: after[number] for number in short})


@needs_torch
def test_flags_for_tuning_build_the_same_model(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """A training that changes nothing has the loss that the converted model is validated with."""
    out = tmp_path / "linformer.pt"
    flags = ["--linformer-k", 8, *PAPER, *ALL_PLACES, "--linformer-window", 2]
    said = run_convert(trained_transformer, out, *flags).ok()
    told = shlex.split(re.search(rf"--finetune-from-model {out} (.*)", said)[1])
    assert {"--linformer-mask-empty-slots", "--linformer-init", "--linformer-window"} <= set(told)
    nothing = ["--finetune-from-model", out, "--max-update", 1, "--lr", 0]
    arguments = train_arguments(data, tmp_path / "tuned", "--linformer-k", 8, *told, *nothing)
    (loss,) = valid_losses(run("validate", *validate_arguments(data, out)).ok())
    assert valid_losses(run("train", *arguments).ok()) == [pytest.approx(loss, abs=0.002)]


@needs_torch
def test_fitting(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "linformer.pt"
    flags = ["--linformer-k", 6, "--linformer-attention", "decoder", "--linformer-window", 2]
    said = run_convert(trained_transformer, out, *flags, "--data", data / "bin", "--fit", 30, "--lengths", 6).ok()
    rows = [line.split("|") for line in said.splitlines() if " tokens " in line]
    assert len(rows) == 2
    assert all(len(row) == len(rows[0]) == 13 for row in rows)
    plain, fitted = (read_checkpoint(path)["model"] for path in (trained_transformer, out))
    weight = fitted["decoder.layers.0.self_attn.key_projection.weight"]
    assert torch.equal(weight[:, :4], torch.eye(4))
    assert all(torch.equal(fitted[name], tensor) for name, tensor in plain.items())
    assert len(hypotheses(run("generate", *generate_arguments(data, out)).ok())) == 30


@needs_torch
def test_sentences_too_long_for_the_model(data: Path, tmp_path: Path) -> None:
    """They are left out, and counted."""
    flags = ["--max-source-positions", 16, "--max-update", 1, "--skip-invalid-size-inputs-valid-test"]
    run("train", *train_arguments(data, tmp_path, *flags, arch="transformer_tiny")).ok()
    checkpoint = tmp_path / "checkpoint_best.pt"
    lengths = [len(line.split()) + 1 for line in (data / "valid.en").read_text().splitlines()]
    flags = ["--fit", 5, "--linformer-k", 4, "--linformer-attention", "decoder"]
    said = run_convert(checkpoint, tmp_path / "linformer.pt", "--data", data / "bin", *flags).ok()
    sentence = f"{sum(n > 16 for n in lengths)} of valid's {len(lengths)} sentences are too long for the model."
    assert sentence in said
    assert "of train's" in said
    assert sentence in run_module("linformer_fairseq.spectrum", checkpoint, data / "bin", "--out", tmp_path).ok()
    without_train = tmp_path / "bin"
    shutil.copytree(data / "bin", without_train, ignore=shutil.ignore_patterns("train*"))
    result = run_convert(checkpoint, tmp_path / "out.pt", "--data", without_train, *flags)
    assert "--fit takes its sentences from there, so leave it out" in result.sentence()


@needs_torch
def test_refusals(trained_transformer: Path, trained: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.pt"
    copy = tmp_path / "copy.pt"
    shutil.copy(trained_transformer, copy)
    for arguments, said in (
        ((trained, out), "holds a linformer_transformer"),
        ((tmp_path / "none.pt", out), "is missing: name a checkpoint that fairseq-train saved"),
        ((copy, copy), "is the checkpoint itself: name another OUT"),
        ((copy, tmp_path), "cannot be written: name a file in a folder that exists"),
        ((copy, out, "--fit", 5), "--fit needs --data"),
        ((copy, out, "--report", tmp_path / "report"), "--report needs --data"),
        ((copy, out, "--linformer-k", "many"), "--linformer-k takes a whole number"),
        ((copy, out, "--linformer-attention", "middle"), "--linformer-attention knows encoder, cross and decoder"),
        (
            (copy, out, "--data", data / "bin", "--fit", 5, "--linformer-k", 4, "--linformer-projection", "mean-pool"),
            "There is no E or F to fit",
        ),
        (
            (copy, out, "--data", data / "bin", "--fit", 5, "--linformer-k", 4, "--linformer-sharing", "layerwise"),
            "use --linformer-sharing headwise or none, not layerwise",
        ),
    ):
        result = run_convert(*arguments)
        assert said in result.sentence()
        assert result.status == 2
    assert {path.name for path in tmp_path.iterdir()} == {"copy.pt"}
