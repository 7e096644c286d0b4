"""Fairseq's commands accept a trained Transformer that the command has converted."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.convert.arguments import parse
from linformer_fairseq.convert.run import run as convert
from linformer_fairseq.models.loading import projection_weights
from tests.fairseq_commands import (
    ALL_PLACES,
    LINFORMER,
    TWO_LEVELS,
    Result,
    environment,
    masked_loss,
    run,
    run_module,
    same_hypotheses,
    translate,
    valid_losses,
    validation_loss,
    with_args,
)
from tests.variants import reads_checkpoints

pytestmark = [pytest.mark.slow, reads_checkpoints]


LINEAR_DECODER = ["--linformer-attention", "decoder", "--linformer-decoder-projection", "linear"]


def run_convert(*arguments: object) -> Result:
    return run_module("linformer_fairseq.convert", *arguments)


def command_of(said: str) -> str:
    """Returns the command of fairseq-train that the end of an output tells."""
    command = said.splitlines()[-1]
    assert command.startswith("fairseq-train ")
    return command


def tune(said: str, folder: Path) -> Result:
    """Runs that command for one update that changes nothing."""
    nothing = ["--max-update", 1, "--lr", 0, "--save-dir", folder]
    return run("train", *shlex.split(command_of(said))[1:], *nothing)


def rows_of(text: str) -> dict[str, list[str]]:
    """Returns the other cells of each row of a summary's tables by its first cell."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return {name: cells for name, *cells in rows}


def test_a_converted_transformer_translates_as_before(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """All three attentions have two levels unless told otherwise, and no data is needed."""
    out, report = tmp_path / "converted.pt", tmp_path / "report"
    said = run_convert(trained_transformer, out, "--texts", 1, "--report", report).ok()
    assert "The first 64 tokens of targets with sources of up to 64 tokens get the same outputs as before" in said
    rows = rows_of(said)
    assert {"64 tokens", "33 to 64"} <= rows.keys()
    assert all(cells[1:] == ["0.0000", cells[2], "100.0%"] for name, cells in rows.items() if name[0].isdigit())
    text = (report / "report.md").read_text()
    assert "on random tokens, 1 text of each length" in text
    assert rows_of(text) == rows
    assert (report / "conversion.png").stat().st_size > 1000
    settings = read_checkpoint(out)["cfg"]["model"]
    assert settings.arch == "two_level_transformer_tiny"
    assert settings.linformer_attention == "encoder,cross,decoder"
    same_hypotheses(*(translate(data, checkpoint) for checkpoint in (trained_transformer, out)))


def test_below_the_exact_length_alone(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """Texts have closed slots from some length on, up to which translations are the same, and the report says so."""
    out, report = tmp_path / "converted.pt", tmp_path / "report"
    cut = [*TWO_LEVELS, "--linformer-k", 4, "--linformer-exact-below", 12]
    compared = ["--data", data / "bin", "--report", report, "--lengths", "6,11,12"]
    said = run_convert(trained_transformer, out, *cut, *compared).ok()
    assert f"The converted model is in {out}." in said
    exact = "The first 12 tokens of targets with sources of up to 11 tokens get the same outputs as before"
    text = (report / "report.md").read_text()
    assert exact in said
    assert exact in text
    assert {path.name for path in report.iterdir()} == {"report.md", "conversion.png"}
    rows = rows_of(text)
    assert rows.keys() >= {"1 to 6 tokens", "7 to 11 tokens", "13 tokens and more", "1 to 6", "from 13 on"}
    for name in ("1 to 6 tokens", "7 to 11 tokens"):  # targets are as long as their sources
        _, before, after, divergence, farthest, same = rows[name]
        assert (before, divergence, same) == (after, "0.0000", "100.0%")
        assert float(farthest) < 1e-4
    assert float(rows["13 tokens and more"][3]) > 0
    assert float(rows["from 13 on"][3]) > 0

    # no hypothesis of the search is longer than 12 tokens
    before, after = (translate(data, checkpoint, "--max-len-b", 11) for checkpoint in (trained_transformer, out))
    lengths = [len(line.split()) + 1 for line in (data / "test.en").read_text().splitlines()]
    short = [number for number, length in enumerate(lengths) if length <= 11]
    assert 5 < len(short) < 25
    same_hypotheses({number: before[number] for number in short}, {number: after[number] for number in short})
    assert {number: score for number, (score, _) in before.items()} != pytest.approx(
        {number: score for number, (score, _) in after.items()}, abs=1e-4
    )


def test_checkpoints_of_old_fairseqs(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """fairseq before 0.10 saved the command line as `args`; its checkpoint is one of today's after conversion."""
    old, out = tmp_path / "old.pt", tmp_path / "converted.pt"
    torch.save(with_args(read_checkpoint(trained_transformer)), old)
    run_convert(old, out, "--texts", 0).ok()
    same_hypotheses(*(translate(data, checkpoint) for checkpoint in (old, out)))


def test_fitted_and_tuned(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """A training that changes nothing has the loss that the converted model is validated with."""
    out = tmp_path / "converted.pt"
    flags = ["--linformer-k", 8, *LINFORMER, *ALL_PLACES]
    fit = ["--data", data / "bin", "--fit", 30, "--lengths", 6]
    said = run_convert(trained_transformer, out, *flags, "--linformer-window", 2, *fit).ok()
    rows = [cells for name, cells in rows_of(said).items() if name.endswith((" tokens", " tokens and more"))]
    assert [len(cells) for cells in rows] == [10, 10]
    before, after = (read_checkpoint(path)["model"] for path in (trained_transformer, out))
    weight = after["decoder.layers.0.self_attn.key_projection.weight"]
    assert torch.equal(weight[:, :6], torch.eye(6))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())

    tuned = tune(said, tmp_path / "tuned").ok()
    assert valid_losses(tuned) == [pytest.approx(validation_loss(data, out), abs=0.002)]


def test_the_told_command_trains_as_before(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """Pasted into a shell it goes through with the sizes and settings of the training, in a folder of its own."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    said = run_convert(trained_transformer, folder / "out.pt", "--texts", 0, "--linformer-k", "8").ok()
    user = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    user["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    pasted = subprocess.run(
        ["bash", "-c", f"{command_of(said)} --max-update 3"], cwd=folder, env=user, capture_output=True, text=True
    )
    assert len(valid_losses(pasted.stdout + pasted.stderr)) == 1, pasted.stderr[-3000:]
    before, after = (
        read_checkpoint(checkpoint)["cfg"]
        for checkpoint in (trained_transformer, folder / "out-tuned" / "checkpoint_last.pt")
    )
    changed = {"linformer", "arch", "_name", "data", "user_dir", "save_dir", "finetune_from_model", "max_update"}
    for part in ("task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset", "common", "checkpoint"):
        assert {**after[part], **dict.fromkeys(changed)} == {**before[part], **dict.fromkeys(changed)}, part
    before, after = vars(before["model"]), vars(after["model"])
    own = {name for name in after if name.startswith("linformer_")}
    assert {name for name in before | after if before.get(name) != after.get(name)} - own <= changed

    state = read_checkpoint(trained_transformer)
    state["cfg"]["criterion"]["_name"] = "of_another_plugin"
    torch.save(state, folder / "other.pt")
    said = run_convert(folder / "other.pt", folder / "out.pt", "--texts", 0).ok()
    flags = f"--finetune-from-model '{folder}/out.pt' --linformer-projection two-level"
    assert said.splitlines()[-1].endswith(
        f"give the command of its training an architecture of this package, and {flags}"
    )


def test_a_converted_roberta(trained_roberta: Path, text: Path, tmp_path: Path) -> None:
    """fairseq-validate finds the loss of before where all texts are short, and the one that the command tells where
    they are not; a training that changes nothing finds it, too."""
    same, cut, report = (tmp_path / name for name in ("same.pt", "cut.pt", "report"))
    before = masked_loss(text, trained_roberta)
    said = run_convert(trained_roberta, same, *TWO_LEVELS, "--linformer-k", 4, "--linformer-exact-below", 24).ok()
    assert "Texts of up to 23 tokens get the same outputs as before, but for rounding." in said
    rows = {name: cells for name, cells in rows_of(said).items() if name[0].isdigit()}
    assert [*rows] == ["8 tokens", "16 tokens", "23 tokens", "32 tokens", "64 tokens"]
    assert [cells[1] == "0.0000" for cells in rows.values()] == [True, True, True, False, False]
    assert masked_loss(text, same) == before
    settings = read_checkpoint(same)["cfg"]["model"]
    assert (settings.arch, settings._name) == ("two_level_roberta", "linformer_roberta")

    shorter = [*TWO_LEVELS, "--linformer-k", 4, "--linformer-exact-below", 8]
    compared = ["--data", text, "--report", report, "--lengths", "7,64"]
    said = run_convert(trained_roberta, cut, *shorter, *compared).ok()
    rows = rows_of((report / "report.md").read_text())
    assert rows_of(said) == rows
    assert rows["1 to 7 tokens"][1] == rows["1 to 7 tokens"][2]
    assert float(rows["8 to 64 tokens"][3]) > 0.01
    after = masked_loss(text, cut)
    assert abs(after - before) > 0.01
    everything = rows_of(run_convert(trained_roberta, cut, *shorter, "--data", text, "--lengths", 64).ok())
    assert [float(cell) for cell in everything["1 to 64 tokens"][1:3]] == pytest.approx([2**before, 2**after], rel=2e-3)
    assert "# A converted masked language model" in (report / "report.md").read_text()

    tuned = tune(said, tmp_path / "tuned").ok()
    assert valid_losses(tuned) == [pytest.approx(after, abs=0.002)]


def test_other_kinds_of_masked_language_models(trained_roberta: Path, text: Path, tmp_path: Path) -> None:
    """Learned E and F are fitted to training text; kinds with parameters of their own get fresh ones."""
    out = tmp_path / "converted.pt"
    fit = ["--data", text, "--fit", 30, "--lengths", "8,64"]
    said = run_convert(trained_roberta, out, *LINFORMER, "--linformer-k", 8, *fit).ok()
    rows = rows_of(said)
    assert rows["1 to 8 tokens"][1] == rows["1 to 8 tokens"][2] == rows["1 to 8 tokens"][6]
    assert float(rows["9 to 64 tokens"][7]) < float(rows["9 to 64 tokens"][3])  # nearer than not fitted
    masked_loss(text, out)
    run_convert(trained_roberta, out, "--linformer-projection", "conv", "--linformer-k", 8, "--texts", 0).ok()
    before, after = (read_checkpoint(path)["model"] for path in (trained_roberta, out))
    assert {*projection_weights(after)} == {*after} - {*before}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    masked_loss(text, out)


def test_refusals_of_masked_language_models(trained_roberta: Path, text: Path, tmp_path: Path) -> None:
    state = read_checkpoint(trained_roberta)
    tuned, unmasked, out = (tmp_path / f"{name}.pt" for name in ("tuned", "unmasked", "out"))
    for path, setting in ((tuned, {"_name": "sentence_prediction"}), (unmasked, {"mask_prob": 1e-9})):
        task = {**state["cfg"]["task"], **setting}
        torch.save({**state, "cfg": {**state["cfg"], "task": task}}, path)
    for arguments, said in (
        ((trained_roberta, out, "--linformer-attention", "encoder"), "is not for masked language models: leave it out"),
        ((trained_roberta, out, "--lengths", "8,65"), "--lengths 65 is longer than the 64 tokens that the model takes"),
        ((trained_roberta, out, "--linformer-k", 65), "--linformer-k 65 is larger than --max-positions 64"),
        ((tuned, out, "--data", text), r"--data has the masks of masked_lm, and \S*tuned.pt is of another task"),
        ((unmasked, out, "--data", text), "valid has no masked token: name another --subset"),
    ):
        with pytest.raises(UserError, match=said):
            convert(parse([*map(str, arguments), "--threads", "1"]))
    assert not out.exists()


def test_sentences_too_long_for_the_model(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    """Sentences that are too long are left out, and the command says how many."""
    state = torch.load(trained_transformer, weights_only=True)
    state["cfg"]["model"].max_source_positions = state["cfg"]["task"]["max_source_positions"] = 16
    checkpoint = tmp_path / "short.pt"
    torch.save(state, checkpoint)
    lengths = [len(line.split()) + 1 for line in (data / "valid.en").read_text().splitlines()]
    flags = ["--fit", 5, "--linformer-k", 4, *LINEAR_DECODER]
    said = run_convert(checkpoint, tmp_path / "converted.pt", "--data", data / "bin", *flags).ok()
    sentence = f"{sum(n > 16 for n in lengths)} of valid's {len(lengths)} sentences are too long for the model."
    assert sentence in said
    assert "of train's" in said


def test_refusals(trained_transformer: Path, trained: Path, data: Path, tmp_path: Path) -> None:
    out, copy, without_train = tmp_path / "out.pt", tmp_path / "copy.pt", tmp_path / "bin"
    shutil.copy(trained_transformer, copy)
    shutil.copytree(data / "bin", without_train, ignore=shutil.ignore_patterns("train*"))
    result = run_convert(trained, out)
    assert "which was trained for its own attention: name the checkpoint of a model" in result.sentence()
    assert result.status == 2
    fit = ("--fit", 5, "--linformer-k", 4)
    for arguments, said in (
        ((tmp_path / "none.pt", out), "is missing: name a checkpoint that fairseq-train saved"),
        ((copy, copy), "is the checkpoint itself: name another OUT"),
        ((copy, tmp_path), "cannot be written: name a file in a folder that exists"),
        ((copy, out, "--fit", 5), "--fit needs --data"),
        (
            (copy, out, "--report", tmp_path / "report", "--texts", 0),
            "--report needs a comparison: leave out --texts 0",
        ),
        ((copy, out, "--lengths", "8,65"), "--lengths 65 is longer than the 64 tokens that the model takes"),
        ((copy, out, "--data", tmp_path), "has no dictionaries: name the folder that fairseq-preprocess wrote"),
        ((copy, out, "--data", data / "bin", "--subset", "other"), "there is no other in the data"),
        ((copy, out, "--linformer-k", "many"), "--linformer-k takes a whole number"),
        ((copy, out, "--linformer-attention", "middle"), "--linformer-attention knows encoder, cross and decoder"),
        ((copy, out, "--data", data / "bin", *fit), "There is no E or F to fit"),
        (
            (copy, out, "--data", data / "bin", *fit, "--linformer-sharing", "layerwise"),
            "use --linformer-sharing headwise or none, not layerwise",
        ),
        (
            (copy, out, "--data", without_train, *fit, *LINEAR_DECODER),
            "--fit takes its sentences from there, so leave it out",
        ),
    ):
        with pytest.raises(UserError, match=said):
            convert(parse([*map(str, arguments), "--threads", "1"]))
    assert {path.name for path in tmp_path.iterdir()} == {"copy.pt", "bin"}
