"""What a user can get wrong ends in one sentence and status 2, before anything is trained."""

import gzip
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json
from linformer_fairseq.recipe.__main__ import main
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.prepare import check_lengths, prepare_subwords
from linformer_fairseq.recipe.settings import store_settings

from .conftest import SIDES, SPLITS

ZIPPED = gzip.compress((SIDES["en"] * 200).encode(), mtime=0)


def refuse(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    """Runs the recipe, and returns the one sentence that it refuses with."""
    assert main([str(arg) for arg in argv]) == 2
    error = capsys.readouterr().err
    progress, _, sentence = error.rpartition("error: ")
    assert "\n" not in progress.strip()  # the BPE learner's progress bar at most
    assert sentence.count("\n") == 1
    assert sentence.endswith(".\n")
    return sentence


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("valid.de", None, "valid.de is missing"),
        ("test.en", b"\n\n", "test.en is empty"),
        ("train.de", b"Ein Mann wartet.\n", "data/train.en has 2 lines but"),
        ("train.en", b"A man waits.\nThe d\xf6g sleeps.\n", "train.en is not UTF-8 text: line 2"),
        ("train.en.gz", ZIPPED[:-12], "train.en.gz is not a whole gzip file"),
        ("train.en.gz", ZIPPED[:12] + b"\xff" * 8 + ZIPPED[20:], "train.en.gz is not a whole gzip file"),
        ("test.en", b"A man waits.\n" + b"dog " * 3000 + b"\n", "Pair 2 of the test set has a line of 12,000 char"),
    ],
    ids=["missing", "empty", "unequal", "not UTF-8", "cut gzip", "damaged gzip", "long line"],
)
def test_bad_text(
    capsys: pytest.CaptureFixture[str], text_folder: Path, tmp_path: Path, file: str, content: bytes | None, said: str
) -> None:
    (text_folder / file.removesuffix(".gz")).unlink()
    if content is not None:
        (text_folder / file).write_bytes(content)
    out = tmp_path / "out"
    assert said in refuse(capsys, "--data", text_folder, "--out", out)
    assert not (out / "models").exists()
    for lang, text in SIDES.items():  # once it is mended, the same folder takes it
        (text_folder / f"train.{lang}").write_text(text, encoding="utf-8")
        (text_folder / f"valid.{lang}").write_text(text, encoding="utf-8")
    out.mkdir(exist_ok=True)
    store_settings(parse(["--data", str(text_folder)]).settings, out, prepares=True)


def test_unreadable_file(capsys: pytest.CaptureFixture[str], text_folder: Path, tmp_path: Path) -> None:
    (text_folder / "test.de").unlink()
    (text_folder / "test.de").symlink_to("/proc/self/mem")  # not even root can read its first byte
    said = refuse(capsys, "--data", text_folder, "--out", tmp_path / "out")
    assert "test.de cannot be read: Input/output error" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["--data", "nowhere"], "nowhere is not a folder"),
        (["--data", ".", "--wmt14", "newstest2013"], "--data and --wmt14 name two texts"),
        (["--source-lang", "fr"], "The synthetic corpus is in de and en only: name your own text with --data."),
        (["--source-lang", "de"], "both de"),
        (["--source-lang", "../en"], "language code"),
        (["--k", "0"], "whole number"),
        (["--k", "8,x"], "'x'"),
        (["--k", "5000"], "--linformer-k 5000"),
        (["--k", "65", "--attention", "decoder", "--", "--max-target-positions", "64"], "--max-target-positions 64"),
        (["--epochs", "0"], "--epochs and --updates are both 0"),
        (["--linear-decay"], "--linear-decay ends with the last of --updates: give their number"),
        (["--average", "3"], "--average 3 asks for more checkpoints than --keep-checkpoints 1"),
        (["--average", "3", "--keep-checkpoints", "3", "--updates", "500"], "500 updates give with one every 200"),
        (["--dropout", "1.5"], "'1.5'"),
        (["--lr", "nan"], "'nan'"),
        (["--attention", "encoder,sideways"], "encoder,sideways"),
        (["--projection", "linear,fft"], "'linear,fft' is not a comma list of linear,"),
        (["--projection", "linear,conv", "--attention", "decoder"], "Without a causal form, conv cannot be the kind"),
        (
            ["--projection", "linear,performer"],
            "performer is for the encoder's self-attention alone: use --attention enc",
        ),
        (["--arch", "lstm"], "lstm is not a translation Transformer of fairseq's that has a Linformer"),
        (["--heads", "3"], "--heads 3"),
        (["--linformer-args", "--linformer-sharing nobody"], "linformer-sharing"),
        (["--linformer-args", "'"], "cannot be split"),
        (["--linformer-args=--max-source-positions 64"], "--max-source-positions is for all models alike"),
        (["--model", "transformer_tiny", "--k", "4"], "linformer_transformer_tiny or two_level_transformer_tiny"),
        (["--model", "two_level_transformer_tiny", "--projection", "linear"], "is of no kind that --projection linear"),
        (["--length-tokens", "100"], "give 256 or more"),
        (["--length-tokens", "600", "--length-k", "8,513"], "the 512 tokens of the longest sentence"),
        (["--precision", "fp16", "--", "--cpu"], "--precision fp16 needs a GPU"),
        (["--nonsense"], "--nonsense"),
        (["--", "--nonsense"], "--nonsense"),
        (["--", "--save-dir", "x"], "--save-dir is set by the recipe"),
        (["--", "--device-id", "1"], "--device-id is set by the worker"),
        (["--linformer-args=--linformer-k 2"], "--linformer-k is set by the recipe"),
        (["--exact-below", "-1"], "'-1' is not a whole number from 0 on"),
        (
            ["--projection", "two-level", "--exact-below", "0", "--linformer-args=--linformer-exact-below 9"],
            "--linformer-exact-below is set by the recipe",
        ),
    ],
)
def test_values(capsys: pytest.CaptureFixture[str], tmp_path: Path, argv: list[str], said: str) -> None:
    assert said in refuse(capsys, "--out", tmp_path / "out", *argv)
    assert not (tmp_path / "out").exists()


def test_output_that_cannot_be_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "out cannot be written" in refuse(capsys, "--out", tmp_path / "file" / "out")


def test_folder_of_other_files_is_left_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "tool").write_text("mine")
    assert "holds other files" in refuse(capsys, "--out", tmp_path)
    for settings in ("[]", '{"epochs": 3}'):
        (tmp_path / "settings.json").write_text(settings)
        assert "holds other files" in refuse(capsys, "--out", tmp_path)
    assert (tmp_path / "bin" / "tool").read_text() == "mine"


def test_text_is_prepared_line_by_line(text_folder: Path, tmp_path: Path) -> None:
    """Empty training pairs go, valid and test stay as they are, and odd line breaks of Unicode break nothing."""
    (text_folder / "train.en").unlink()
    (text_folder / "train.en.gz").write_bytes(gzip.compress("A\u2028man\x85waits.\r\n\nThe dog sleeps.\n".encode()))
    (text_folder / "train.de").write_text("Ein Mann wartet.\nDer Hund schläft.\n \n", encoding="utf-8")
    (text_folder / "test.en").write_text("A man waits.\n\n" + "dog " * 300 + "\n", encoding="utf-8")
    (text_folder / "test.de").write_text("Ein Mann wartet.\n\nHund.\n", encoding="utf-8")
    settings = parse(["--data", str(text_folder), "--bpe-merges", "1", "--max-tokens", "100"]).settings
    out = tmp_path / "out"
    prepare_subwords(settings.text, out, threads=1)
    sizes = read_json(out / "raw" / "sizes.json")
    assert sizes == {"train": 1, "dropped": {"an empty side": 2}, "valid": 2, "test": 3}
    for split in SPLITS:
        for lang in ("en", "de"):
            assert len((out / "bpe" / f"{split}.{lang}").read_text(encoding="utf-8").splitlines()) == sizes[split]
    with pytest.raises(UserError, match=r"Line 3 of test\.en has 901 subwords, more than the 100 that fit"):
        check_lengths(settings, out)
