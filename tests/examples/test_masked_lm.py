"""examples/masked_lm: plain text to binary data, a study to perplexities, and what is refused."""

import gzip
import json
import re
from pathlib import Path

import pytest
import sentencepiece
from fairseq.data import Dictionary, data_utils

from tests import fairseq_commands
from tests.examples.recipes import EXAMPLES, refused, run

pytestmark = pytest.mark.slow

PREPARE, TRAIN, EVALUATE = (str(EXAMPLES / "masked_lm" / name) for name in ("prepare.sh", "train.sh", "evaluate.sh"))
VARIABLES = {"VOCABULARY": "30", "AVERAGE": "0"}


def write_books(folder: Path) -> Path:
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfOne  paragraph.\r\n Another.\n\n\n\nA second document.")
    with gzip.open(folder / "b.txt.gz", "wb") as file:
        file.write("\n\nÜber a tab\there\n \n".encode())
    (folder / "c.txt").write_text("another document\n")
    (folder / "d.txt").write_text("a second paragraph\nhere\n")
    (folder / "notes.md").write_text("no text")
    return folder


def lines(binary: Path, name: str) -> list[str]:
    """Returns the paragraphs that are in the binary data."""
    words = Dictionary.load(str(binary / "dict.txt"))
    found = data_utils.load_indexed_dataset(str(binary / name), words)
    return [words.string(found[i], "sentencepiece") for i in range(len(found))]


def test_text_becomes_binary_data(tmp_path: Path) -> None:
    """Documents are separated by one empty line, those of two files too; sets are chosen by the names of files."""
    books = write_books(tmp_path / "some books")
    run(PREPARE, "out", books, cwd=tmp_path, TEST="c", **VARIABLES).ok()
    binary = tmp_path / "out/bin"
    assert lines(binary, "train") == ["One paragraph.", "Another.", "", "A second document.", "", "Über a tab here"]
    assert lines(binary, "valid") == ["a second paragraph", "here"]
    assert lines(binary, "test") == ["another document"]
    model = sentencepiece.SentencePieceProcessor(model_file=str(binary / "sentencepiece.model"))
    assert model.get_piece_size() == 30
    said = run(PREPARE, "out", books, cwd=tmp_path, TEST="c", **VARIABLES).ok()
    assert said == f"{binary}: already prepared\n"
    sentence = refused(PREPARE, "out", books, cwd=tmp_path, VALID="c", **VARIABLES)
    assert sentence.endswith("> --valid c > --test ''; go on with those, or name another OUT.")
    run(PREPARE, "other", books, cwd=tmp_path, VALID="b c", **VARIABLES).ok()
    assert lines(tmp_path / "other/bin", "valid")[1:] == ["", "another document"]
    assert not (tmp_path / "other/bin/test.idx").exists()


def broken(books: Path, what: str) -> tuple[str, dict[str, str]]:
    """Breaks a text, and returns what the refusal says and the variables that it is given."""
    if what == "no folder":
        return "nothing is missing: name a folder with *.txt or *.txt.gz", {}
    if what == "no file":
        for name in ("a.txt", "b.txt.gz", "c.txt", "d.txt"):
            (books / name).unlink()
        return "has 0 files *.txt or *.txt.gz: give it some to train on", {}
    if what == "one file":
        for name in ("a.txt", "b.txt.gz", "c.txt"):
            (books / name).unlink()
        return "has 1 files *.txt or *.txt.gz: give it some to train on", {}
    if what == "all files":
        return "leave none of the 4 files of ... for the train set", {"VALID": "a b", "TEST": "c d"}
    if what == "another name":
        return "has no e.txt or e.txt.gz: name files of it in VALID and TEST", {"VALID": "e"}
    if what == "twice":
        (books / "b.txt").write_text("again")
        return "has b.txt both plain and gzipped", {}
    if what == "empty":
        (books / "d.txt").write_text(" \n\n")
        return "The valid set of ... is empty: give it text", {}
    if what == "latin-1":
        (books / "c.txt").write_text("one\nsüß", encoding="latin-1")
        return "c.txt is not UTF-8 text: line 2 cannot be read", {}
    if what == "cut":
        (books / "b.txt.gz").write_bytes((books / "b.txt.gz").read_bytes()[:30])
        return "b.txt.gz cannot be read, or is no whole gzip file", {}
    return "sentencepiece finds no 9000 subwords ... too high ... name another VOCABULARY", {"VOCABULARY": "9000"}


@pytest.mark.parametrize(
    "what",
    [
        *("no folder", "no file", "one file", "all files", "another name", "twice", "empty", "latin-1", "cut"),
        "vocabulary",
    ],
)
def test_what_cannot_be_prepared(tmp_path: Path, what: str) -> None:
    books = write_books(tmp_path / "books")
    said, variables = broken(books, what)
    text = books if what != "no folder" else tmp_path / "nothing"
    sentence = refused(PREPARE, "out", text, cwd=tmp_path, **{**VARIABLES, **variables})
    assert all(part in sentence for part in said.split(" ... "))
    assert not (tmp_path / "out/bin").exists()


def test_the_perplexity_is_that_of_fairseq(pretrained: Path, tmp_path: Path) -> None:
    """Also in other batches, and of a converted model."""
    flags = ["--task", "masked_lm", "--seed", 1, "--required-batch-size-multiple", 1, "--batch-size", 1, "--cpu"]
    for arm in ("full", "converted-key-clusters"):
        folder = pretrained / "out/runs" / arm / "seed-1"
        given = [pretrained / "out/bin", *fairseq_commands.PLUGIN, "--path", folder / "checkpoint_best.pt", *flags]
        said = fairseq_commands.run("validate", *given, "--log-format", "json").ok()
        scores = json.loads((folder / "scores.json").read_text())
        assert float(re.findall(r'"valid_ppl": "([\d.]+)"', said)[-1]) == pytest.approx(scores["perplexity"], rel=1e-3)
    assert "--linformer-projection key-clusters" in (folder / "command").read_text()
    binary, folder = pretrained / "out/bin", pretrained / "out/runs/full/seed-1"
    assert run(EVALUATE, binary, folder, cwd=tmp_path, **VARIABLES).ok() == f"{folder}: already evaluated\n"
    assert "> --seed 2;" in refused(EVALUATE, binary, folder, "--seed", 2, cwd=tmp_path, **VARIABLES)


def test_training_is_recorded(pretrained: Path, tmp_path: Path) -> None:
    folder = pretrained / "out/runs/full/seed-1"
    assert "--total-num-update 8" in (folder / "command").read_text()
    assert '"train_num_updates": "8"' in (folder / "train.log").read_text()
    sentence = refused(TRAIN, pretrained / "out/bin", folder, "roberta_tiny", cwd=tmp_path, **VARIABLES)
    assert "was begun with different flags" in sentence
    assert "has no dict.txt" in refused(TRAIN, pretrained, folder, "roberta_tiny", cwd=tmp_path)
    dry = run(TRAIN, pretrained / "out/bin", "run", "roberta_tiny", cwd=tmp_path, DRY_RUN="1", PLUGIN="examples/x").ok()
    assert f"--user-dir {EXAMPLES.parent}/examples/x" in dry
