"""Plain text becomes documents, split by file."""

import gzip
from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.masked_lm.text import digests, documents, find_files
from tests.masked_lm.made_text import write_books


def names(files: dict[str, list[Path]]) -> dict[str, list[str]]:
    return {split: [path.name for path in paths] for split, paths in files.items()}


def test_the_last_file_is_validated_on(tmp_path: Path) -> None:
    write_books(tmp_path)
    (tmp_path / "README").write_text("no text of the study")
    expected = {"train": ["book-0.txt", "book-1.txt"], "valid": ["book-2.txt"]}
    assert names(find_files(tmp_path, [])) == expected


def test_files_to_validate_on_are_named_without_ending(tmp_path: Path) -> None:
    write_books(tmp_path)
    plain = tmp_path / "book-1.txt"
    (tmp_path / "book-1.txt.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    expected = {"train": ["book-2.txt"], "valid": ["book-0.txt", "book-1.txt.gz"]}
    assert names(find_files(tmp_path, ["book-1", "book-0"])) == expected


def test_empty_lines_end_documents(tmp_path: Path) -> None:
    path = tmp_path / "one.txt.gz"
    path.write_bytes(gzip.compress(b"\n\na b\n c \n\n\n\nd\n   \ne"))
    assert list(documents([path, path])) == [["a b", "c"], ["d"], ["e"]] * 2


def test_a_digest_of_every_file(tmp_path: Path) -> None:
    files = find_files(write_books(tmp_path), [])
    before = digests(files)
    (tmp_path / "book-0.txt").write_text("another text\n")
    after = digests(files)
    assert before["valid"] == after["valid"]
    assert {name for name in before["train"] if before["train"][name] != after["train"][name]} == {"book-0.txt"}


@pytest.mark.parametrize(
    ("valid", "said"),
    [
        (["book-7"], "--valid book-7 is not a file in .*: choose from book-0, book-1, book-2"),
        (["book-0", "book-1", "book-2"], "--valid names all files: leave some to train on"),
    ],
)
def test_refusals_of_valid(tmp_path: Path, valid: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        find_files(write_books(tmp_path), valid)


def test_other_refusals(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a folder: name one of plain text"):
        find_files(tmp_path / "none", [])
    write_books(tmp_path, books=1)
    with pytest.raises(UserError, match="has 1 text files, but one to validate on and others to train on are needed"):
        find_files(tmp_path, [])
    (tmp_path / "book-0.txt.gz").write_bytes(gzip.compress(b"a"))
    with pytest.raises(UserError, match="both plain and gzipped"):
        find_files(tmp_path, [])
