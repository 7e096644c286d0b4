"""What a user can get wrong ends in one sentence and status 2, before anything is trained."""

import gzip
import json

import pytest
import torch

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.recipe.__main__ import main
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.evaluate import in_order
from linformer_fairseq.recipe.prepare import _check_binarised, prepare
from linformer_fairseq.recipe.settings import keep
from linformer_fairseq.recipe.steps import locked

SPLITS = ("train", "valid", "test")


@pytest.fixture
def data(tmp_path):
    """A folder of text in which nothing is wrong."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split in SPLITS:
        (folder / f"{split}.en").write_text("A man waits.\nThe dog sleeps.\n", encoding="utf-8")
        (folder / f"{split}.de").write_text("Ein Mann wartet.\nDer Hund schläft.\n", encoding="utf-8")
    return folder


def refuse(capsys, *argv):
    """Run the recipe, and return the one sentence it refuses with."""
    assert main([str(arg) for arg in argv]) == 2
    error = capsys.readouterr().err
    progress, _, sentence = error.rpartition("error: ")
    assert "\n" not in progress.strip()  # the BPE learner's progress bar at most
    assert sentence.count("\n") == 1
    assert sentence.endswith(".\n")
    return sentence


def test_missing_file(capsys, data, tmp_path):
    (data / "valid.de").unlink()
    assert "valid.de is missing" in refuse(capsys, "--data", data, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_folder(capsys, tmp_path):
    assert "nowhere is not a folder" in refuse(capsys, "--data", tmp_path / "nowhere", "--out", tmp_path / "out")


def test_unreadable_file(capsys, data, tmp_path):
    (data / "test.de").unlink()
    (data / "test.de").symlink_to("/proc/self/mem")  # a regular file of which not even root can read the first byte
    assert "test.de cannot be read: Input/output error" in refuse(capsys, "--data", data, "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_empty_file(capsys, data, tmp_path):
    (data / "test.en").write_text("\n\n", encoding="utf-8")
    assert "test.en is empty" in refuse(capsys, "--data", data, "--out", tmp_path / "out")


def test_unequal_lengths_name_both_files_and_counts(capsys, data, tmp_path):
    (data / "train.de").write_text("Ein Mann wartet.\n", encoding="utf-8")
    error = refuse(capsys, "--data", data, "--out", tmp_path / "out")
    assert "train.en has 2 lines" in error
    assert "train.de has 1" in error


def test_mended_data_is_taken_in_the_same_folder(capsys, data, tmp_path):
    (data / "train.de").write_text("Ein Mann wartet.\n", encoding="utf-8")
    refuse(capsys, "--data", data, "--out", tmp_path / "out")
    (data / "train.de").write_text("Ein Mann wartet.\nDer Hund schläft.\n", encoding="utf-8")
    keep(parse(["--data", str(data)]).settings, tmp_path / "out", prepares=True)


def test_not_utf8(capsys, data, tmp_path):
    (data / "train.en").write_bytes(b"A man waits.\nThe d\xf6g sleeps.\n")
    assert "train.en is not UTF-8 text: line 2" in refuse(capsys, "--data", data, "--out", tmp_path / "out")


def test_cut_gzip(capsys, data, tmp_path):
    (data / "train.en").unlink()
    (data / "train.en.gz").write_bytes(gzip.compress(b"A man waits.\n" * 200)[:-12])
    assert "train.en.gz is not a whole gzip file" in refuse(capsys, "--data", data, "--out", tmp_path / "out")


def test_output_that_cannot_be_written(capsys, tmp_path):
    (tmp_path / "file").touch()
    error = refuse(capsys, "--out", tmp_path / "file" / "out")
    assert "out cannot be written" in error


def test_line_too_long_to_translate(capsys, data, tmp_path):
    (data / "test.en").write_text("A man waits.\n" + "dog " * 300 + "\n", encoding="utf-8")
    error = refuse(capsys, "--data", data, "--out", tmp_path / "out", "--max-tokens", 100, "--bpe-merges", 1)
    assert "Line 2 of test.en" in error


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--k", "0"], "whole number"),
        (["--k", "8,x"], "'x'"),
        (["--k", "5000"], "--linformer-k 5000"),
        (["--epochs", "-1"], "whole number"),
        (["--epochs", "many"], "'many'"),
        (["--dropout", "1.5"], "'1.5'"),
        (["--lr", "nan"], "'nan'"),
        (["--attention", "encoder,sideways"], "encoder,sideways"),
        (["--projection", "linear,fft"], "'linear,fft' is not a comma list of linear, two-level"),
        (["--arch", "transformer_of_nobody"], "transformer_of_nobody"),
        (["--heads", "3"], "--heads 3"),
        (["--source-lang", "fr"], "--data"),
        (["--source-lang", "de"], "both de"),
        (["--source-lang", "../en"], "language code"),
        (["--linformer-args", "--linformer-sharing nobody"], "linformer-sharing"),
        (["--linformer-args", "'"], "cannot be split"),
        (["--model", "transformer_tiny", "--k", "4"], "mean nothing: name linformer_transformer_tiny"),
        (["--length-tokens", "100"], "give 256 or more"),
        (["--nonsense"], "--nonsense"),
        (["--", "--nonsense"], "--nonsense"),
    ],
)
def test_values(capsys, tmp_path, argv, said):
    assert said in refuse(capsys, "--out", tmp_path / "out", *argv)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("result", ["checkpoints/checkpoint_last.pt", "train.json"])
def test_other_settings_in_the_same_folder(tmp_path, result):
    """Neither a training under way nor a finished one without its checkpoints is thrown away."""
    keep(parse(["--epochs", "3"]).settings, tmp_path, prepares=True)
    keep(parse(["--epochs", "3", "--k", "4"]).settings, tmp_path, prepares=True)
    path = tmp_path / "models" / "transformer" / result
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(UserError, match=r"epochs = 3, not 4.*another --out"):
        keep(parse(["--epochs", "4"]).settings, tmp_path, prepares=True)
    assert path.exists()


def test_prepared_text_is_replaced_by_a_command_that_prepares(tmp_path):
    """Never by one that only trains or evaluates, a mistyped variable of which would cost hours."""
    keep(parse([]).settings, tmp_path, prepares=True)
    (tmp_path / "bin").mkdir()
    other = parse(["--bpe-merges", "700"]).settings
    with pytest.raises(UserError, match=r"bpe_merges = 800, not 700.*prepare\.sh"):
        keep(other, tmp_path, prepares=False)
    assert (tmp_path / "bin").exists()
    keep(parse(["--lr", "1"]).settings, tmp_path, prepares=False)
    assert (tmp_path / "bin").exists()
    keep(other, tmp_path, prepares=True)
    assert not (tmp_path / "bin").exists()


def test_a_training_that_has_saved_nothing_is_begun_anew_with_other_settings(tmp_path):
    keep(parse(["--lr", "1"]).settings, tmp_path, prepares=True)
    log = tmp_path / "models" / "transformer" / "train.log"
    log.parent.mkdir(parents=True)
    log.write_text("of another learning rate")
    keep(parse(["--lr", "2"]).settings, tmp_path, prepares=False)
    assert not log.exists()


def test_automatic_precision_is_decided_at_once(tmp_path):
    """So that a folder holds one, and nothing goes on in another."""
    chosen = "fp16" if torch.cuda.is_available() else "fp32"
    out = ["--out", str(tmp_path)]
    assert parse(out).settings.training.precision == chosen
    assert parse([*out, "--", "--cpu"]).settings.training.precision == "fp32"
    assert parse([*out, "--precision", "amp"]).settings.training.precision == "amp"


def test_automatic_precision_is_that_of_the_models_that_are_there(tmp_path):
    """A folder that was trained on a GPU can be evaluated, and reported on, without one."""
    arguments = ["--out", str(tmp_path)]
    keep(parse([*arguments, "--precision", "amp"]).settings, tmp_path, prepares=True)
    assert parse(arguments).settings.training.precision != "amp"
    (tmp_path / "models" / "transformer").mkdir(parents=True)
    (tmp_path / "models" / "transformer" / "train.json").touch()
    assert parse(arguments).settings.training.precision == "amp"
    keep(parse(arguments).settings, tmp_path, prepares=False)


def test_two_runs_in_one_folder(tmp_path):
    with (
        locked(tmp_path),
        pytest.raises(UserError, match="Another run"),
        locked(tmp_path, patience=0),
    ):
        pass


def test_missing_hypotheses_are_no_score():
    with pytest.raises(UserError, match="gave 1 translations for 2"):
        in_order({1: "a"}, 2, "Transformer")


def test_hypotheses_come_in_the_order_of_the_test_set():
    assert in_order({2: "c", 0: "a", 1: "b"}, 3, "Transformer") == ["a", "b", "c"]


def test_text_is_prepared_line_by_line(data, tmp_path):
    """Empty training pairs go, valid and test stay as they are, and odd line breaks of Unicode break nothing."""
    (data / "train.en").unlink()
    (data / "train.en.gz").write_bytes(gzip.compress("A\u2028man\x85waits.\r\n\nThe dog sleeps.\n".encode()))
    (data / "train.de").write_text("Ein Mann wartet.\nDer Hund schläft.\n \n", encoding="utf-8")
    (data / "test.en").write_text("A man waits.\n\n", encoding="utf-8")
    out = tmp_path / "out"
    out.mkdir()
    run = parse(["--data", str(data), "--threads", "1", "--bpe-merges", "10"])
    with locked(out) as lock:
        prepare(run.settings.text, run.server, out, run.threads, lock)
    sizes = json.loads((out / "raw" / "sizes.json").read_text(encoding="utf-8"))
    assert sizes == {"train": 1, "dropped": {"an empty side": 2}, "valid": 2, "test": 2}
    for split in SPLITS:
        for lang in ("en", "de"):
            text = (out / "bpe" / f"{split}.{lang}").read_text(encoding="utf-8")
            assert len(text.splitlines()) == sizes[split]
    assert (out / "bin" / "train.en-de.en.bin").exists()
    facts = read_json(out / "bpe" / "subwords.json")
    write_json(out / "bpe" / "subwords.json", {**facts, "test": {**facts["test"], "pairs": 3}})
    with pytest.raises(UserError, match=r"has made 2 of the 3 lines of test\.en"):
        _check_binarised(run.settings.text, out, out / "bin")


def test_folder_of_other_files_is_left_alone(capsys, data, tmp_path):
    out = tmp_path / "home"
    (out / "bin").mkdir(parents=True)
    (out / "bin" / "tool").write_text("mine")
    for settings in (None, "[]", '{"epochs": 3}'):
        if settings:
            (out / "settings.json").write_text(settings)
        assert "holds other files" in refuse(capsys, "--data", data, "--out", out)
        assert (out / "bin" / "tool").read_text() == "mine"


def test_edited_text_of_the_same_size_is_another_text(data):
    before = parse(["--data", str(data)]).settings
    lines = (data / "test.de").read_text(encoding="utf-8").splitlines()
    (data / "test.de").write_text("\n".join(reversed(lines)) + "\n", encoding="utf-8")
    assert parse(["--data", str(data)]).settings != before


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (["--", "--save-dir", "x"], "--save-dir"),
        (["--", "--log-format", "simple"], "--log-format"),
        (["--", "--max-epoch", "2"], "--max-epoch"),
        (["--k", "8", "--linformer-args=--linformer-k 2"], "--linformer-k"),
        (
            ["--projection", "linear", "--linformer-args=--linformer-projection conv"],
            "--linformer-projection",
        ),
    ],
)
def test_flags_that_the_recipe_sets(capsys, data, tmp_path, arguments, flag):
    sentence = refuse(capsys, "--data", data, "--out", tmp_path / "out", *arguments)
    assert f"{flag} is set by the recipe" in sentence


def test_limits_are_not_for_linformers_alone(capsys, data, tmp_path):
    """All models are evaluated with the same."""
    flags = "--linformer-args=--max-source-positions 64"
    sentence = refuse(capsys, "--data", data, "--out", tmp_path / "out", "--k", "8", flags)
    assert "--max-source-positions is for all models alike: give it after --, not in --linformer-args" in sentence


def test_damaged_gzip(capsys, data, tmp_path):
    whole = gzip.compress((data / "train.en").read_bytes())
    (data / "train.en").unlink()
    (data / "train.en.gz").write_bytes(whole[:12] + b"\xff" * 8 + whole[20:])
    assert "is not a whole gzip file" in refuse(capsys, "--data", data, "--out", tmp_path / "out")


def test_limits_of_source_and_target_are_their_own():
    longest = parse(["--", "--max-source-positions", "2048"]).settings.training.longest
    assert longest == {"--max-source-positions": 2048, "--max-target-positions": 1024}


def test_slots_of_the_decoder_are_bound_by_the_longest_target(capsys, data, tmp_path):
    sizes = ["--data", data, "--out", tmp_path / "out", "--k", "65", "--attention", "decoder"]
    error = refuse(capsys, *sizes, "--", "--max-target-positions", "64")
    assert "larger than --max-target-positions 64; choose k <= N" in error
