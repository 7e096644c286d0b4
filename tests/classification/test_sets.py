"""Tab-separated files become labelled texts, or are refused in a sentence that says what to do."""

import gzip
from pathlib import Path

import pytest

from linformer_fairseq.classification.sets import Example, TextSet, read_sets
from linformer_fairseq.cli.errors import UserError
from tests.classification.made import examples, write_set


def read(folder: Path, *names: str) -> list[TextSet]:
    return read_sets(folder, names)


def test_a_set(tmp_path: Path) -> None:
    (found,) = read(write_set(tmp_path / "weather"))
    assert (found.name, found.labels) == ("weather", ["calm", "rain"])
    for split, texts in found.splits.items():
        assert texts == [Example(*example) for example in examples(split)]
        assert found.classes(split) == [int(label == "rain") for label, _ in examples(split)]


def test_all_sets_of_a_folder_or_some(tmp_path: Path) -> None:
    for name in ("b", "a", ".hidden"):
        write_set(tmp_path / name)
    (tmp_path / "README").write_text("no set")
    assert [own.name for own in read(tmp_path)] == ["a", "b"]
    assert [own.name for own in read(tmp_path, "b")] == ["b"]


def test_a_gzipped_file_with_other_columns(tmp_path: Path) -> None:
    write_set(tmp_path / "weather")
    (before,) = read(tmp_path / "weather")
    path = tmp_path / "weather" / "dev.tsv"
    lines = ["sentence\tlabel", *(f"{text}\t{label}" for label, text in examples("dev"))]
    path.unlink()
    path.with_name("dev.tsv.gz").write_bytes(gzip.compress("\r\n".join(lines).encode()))
    (after,) = read(tmp_path / "weather")
    assert after.splits == before.splits
    assert after.digest("dev") == before.digest("dev") != before.digest("test")


def test_quotation_marks_are_letters(tmp_path: Path) -> None:
    folder = write_set(tmp_path / "weather")
    texts = ['" rain , "" again', 'a "b', "it's \\ night \\n", "x" * 200_000]
    (folder / "train.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{i % 2}\n" for i, text in enumerate(texts)))
    for split in ("dev", "test"):
        (folder / f"{split}.tsv").write_text("text\tlabel\na\t1\n")
    (found,) = read(folder)
    assert [example.text for example in found.splits["train"]] == texts


HEADER = "label\ttext\n"


@pytest.mark.parametrize(
    ("split", "content", "said"),
    [
        (
            "train",
            "text\nrain\n",
            r"The first line of .*train.tsv has to name a column label and a column text or sent",
        ),
        (
            "train",
            "label\ttext\tsentence\n",
            "has to name a column label and a column text or sentence, but it has 'la",
        ),
        ("train", "", "has to name a column label and a column text or sentence, but it has none: rename its columns"),
        ("dev", HEADER, r"dev.tsv has no texts below its header: give it some"),
        ("dev", f"{HEADER}calm\ta\nrain\t \n", "Line 3 of .*dev.tsv has an empty text: fill it in, or remove it"),
        ("dev", f"{HEADER}\ta\n", "Line 2 of .*dev.tsv has an empty label: fill it in, or remove it"),
        ("dev", f"{HEADER}calm\ta\tb\n", "Line 2 of .*dev.tsv has 3 columns, but the header has 2: a tab stands betw"),
        ("dev", f"{HEADER}calm\ta\n\n", "Line 3 of .*dev.tsv has 0 columns, but the header has 2"),
        ("dev", f"{HEADER}calm\ta\rb\n", "Line 2 of .*dev.tsv is not tab-separated text"),
        (
            "test",
            f"{HEADER}calm\ta\nsnow\tb\n",
            r"Line 3 of .*test.tsv has the label 'snow', which no training text has ",
        ),
        (
            "train",
            f"{HEADER}calm\ta\ncalm\tb\n",
            r"All texts of .*train.tsv have the label 'calm': there is nothing to",
        ),
    ],
)
def test_files_that_are_refused(tmp_path: Path, split: str, content: str, said: str) -> None:
    folder = write_set(tmp_path / "weather")
    (folder / f"{split}.tsv").write_bytes(content.encode())
    with pytest.raises(UserError, match=said):
        read(folder)


def test_folders_that_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no-such is not a folder: name one with train, dev and test"):
        read(tmp_path / "no-such")
    with pytest.raises(UserError, match=r"has neither train\.tsv nor folders with one"):
        read(tmp_path)
    folder = write_set(tmp_path / "weather")
    (tmp_path / "half").mkdir()
    with pytest.raises(
        UserError, match=r"half has no train\.tsv \(or train\.tsv\.gz\): every set needs train, dev and"
    ):
        read(tmp_path)
    with pytest.raises(UserError, match=r"--sets news is not in .*: choose from half, weather"):
        read(tmp_path, "news")
    (folder / "test.tsv").unlink()
    with pytest.raises(UserError, match=r"weather has no test\.tsv"):
        read(folder)
