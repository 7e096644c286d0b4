"""Fairseq's commands accept a trained Transformer that the command has converted."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.convert.arguments import parse
from linformer_fairseq.convert.run import run as convert
from linformer_fairseq.models.config import LinformerConfig
from tests.fairseq_commands import (
    ALL_PLACES,
    LINFORMER,
    Result,
    run_module,
    same_hypotheses,
    train,
    translate,
    valid_losses,
    validation_loss,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not hasattr(torch.serialization, "add_safe_globals"), reason="converting needs torch 2.4"),
]


def run_convert(*arguments: object) -> Result:
    return run_module("linformer_fairseq.convert", *arguments)


def test_two_levels_translate_as_before(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """A Transformer is converted to two levels unless another kind is named."""
    out, report = tmp_path / "converted.pt", tmp_path / "report"
    said = run_convert(trained_transformer, out, "--linformer-k", 16, "--data", data / "bin", "--report", report).ok()
    assert f"The converted model is in {out}." in said
    assert read_checkpoint(out)["cfg"]["model"].arch == "two_level_transformer_tiny"
    assert {path.name for path in report.iterdir()} == {"report.md", "conversion.png"}
    text = (report / "report.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if " tokens " in line]
    assert [row[0] for row in rows[:2]] == ["1 to 8 tokens", "9 to 16 tokens"]
    for row in rows[:2]:  # no more tokens than slots
        assert row[2] == row[3]
        assert (float(row[4]), row[6]) == (0.0, "100.0%")
        assert float(row[5]) < 1e-4
    assert float(rows[2][4]) > 0

    before, after = (translate(data, checkpoint) for checkpoint in (trained_transformer, out))
    assert len(before) == len(after) == 30
    lengths = [len(line.split()) + 1 for line in (data / "test.en").read_text().splitlines()]
    short = [number for number, length in enumerate(lengths) if length <= 16]
    same_hypotheses({number: before[number] for number in short}, {number: after[number] for number in short})


def test_fitted_and_tuned(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """A training that changes nothing has the loss that the converted model is validated with."""
    out = tmp_path / "converted.pt"
    flags = ["--linformer-k", 8, *LINFORMER, *ALL_PLACES]
    fit = ["--data", data / "bin", "--fit", 30, "--lengths", 6]
    said = run_convert(trained_transformer, out, *flags, "--linformer-window", 2, *fit).ok()
    rows = [line.split("|") for line in said.splitlines() if " tokens " in line]
    assert len(rows) == 2
    assert all(len(row) == len(rows[0]) == 13 for row in rows)
    before, after = (read_checkpoint(path)["model"] for path in (trained_transformer, out))
    weight = after["decoder.layers.0.self_attn.key_projection.weight"]
    assert torch.equal(weight[:, :6], torch.eye(6))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())

    told = shlex.split(re.search(rf"--finetune-from-model {out} (.*)", said)[1])
    assert {"--linformer-mask-empty-slots", "--linformer-init", "--linformer-window"} <= set(told)
    nothing = ["--finetune-from-model", out, "--max-update", 1, "--lr", 0]
    tuned = train(data, tmp_path / "tuned", "--linformer-k", 8, *told, *nothing).ok()
    assert valid_losses(tuned) == [pytest.approx(validation_loss(data, out), abs=0.002)]


def test_sentences_too_long_for_the_model(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """Sentences that are too long are left out, and the command says how many."""
    state = torch.load(trained_transformer, weights_only=True)
    state["cfg"]["model"].max_source_positions = state["cfg"]["task"]["max_source_positions"] = 16
    checkpoint = tmp_path / "short.pt"
    torch.save(state, checkpoint)
    lengths = [len(line.split()) + 1 for line in (data / "valid.en").read_text().splitlines()]
    flags = ["--fit", 5, "--linformer-k", 4, "--linformer-attention", "decoder"]
    said = run_convert(checkpoint, tmp_path / "converted.pt", "--data", data / "bin", *flags).ok()
    sentence = f"{sum(n > 16 for n in lengths)} of valid's {len(lengths)} sentences are too long for the model."
    assert sentence in said
    assert "of train's" in said
    assert sentence in run_module("linformer_fairseq.spectrum", checkpoint, data / "bin", "--out", tmp_path).ok()


def test_refusals(trained_transformer: Path, trained: Path, data: Path, tmp_path: Path) -> None:
    out, copy, without_train = tmp_path / "out.pt", tmp_path / "copy.pt", tmp_path / "bin"
    shutil.copy(trained_transformer, copy)
    shutil.copytree(data / "bin", without_train, ignore=shutil.ignore_patterns("train*"))
    result = run_convert(trained, out)
    assert "holds a linformer_transformer" in result.sentence()
    assert result.status == 2
    fit = ("--fit", 5, "--linformer-k", 4)
    for arguments, said in (
        ((tmp_path / "none.pt", out), "is missing: name a checkpoint that fairseq-train saved"),
        ((copy, copy), "is the checkpoint itself: name another OUT"),
        ((copy, tmp_path), "cannot be written: name a file in a folder that exists"),
        ((copy, out, "--fit", 5), "--fit needs --data"),
        ((copy, out, "--report", tmp_path / "report"), "--report needs --data"),
        ((copy, out, "--linformer-k", "many"), "--linformer-k takes a whole number"),
        ((copy, out, "--linformer-attention", "middle"), "--linformer-attention knows encoder, cross and decoder"),
        ((copy, out, "--data", data / "bin", *fit), "There is no E or F to fit"),
        (
            (copy, out, "--data", data / "bin", *fit, "--linformer-sharing", "layerwise"),
            "use --linformer-sharing headwise or none, not layerwise",
        ),
        (
            (copy, out, "--data", without_train, *fit, "--linformer-attention", "decoder"),
            "--fit takes its sentences from there, so leave it out",
        ),
    ):
        with pytest.raises(UserError, match=said):
            convert(parse([*map(str, arguments), "--threads", "1"]))
    assert {path.name for path in tmp_path.iterdir()} == {"copy.pt", "bin"}


def test_flags_of_the_new_model() -> None:
    """The defaults are those of the kind, but learned E and F start as exact attention of up to k tokens."""

    def config(*given: str) -> LinformerConfig:
        return parse(["a.pt", "b.pt", *given]).config

    def start(*given: str) -> tuple[str, bool]:
        return config(*given).linformer_init, config(*given).linformer_mask_empty_slots

    assert config().linformer_projection == "two-level"
    assert start() == start("--linformer-projection", "pooled-linear") == ("xavier", False)
    assert start(*LINFORMER) == start(*ALL_PLACES) == ("identity", True)
    assert start(*LINFORMER, "--linformer-init", "normal") == ("normal", True)
    assert config(*ALL_PLACES).linformer_window is None  # half of k
    assert config(*ALL_PLACES, *LINFORMER).linformer_window == 0
