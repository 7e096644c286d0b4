"""Texts of documents."""

from pathlib import Path

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents.arguments import parse
from linformer_fairseq.documents.datasets import DocumentFolder, Documents


def dataset(out: Path, *arguments: str) -> Documents:
    return parse(["--out", str(out), *arguments]).settings.text.dataset


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for split in ("train", "more", "valid", "test"):
        for lang in ("en", "de"):
            (tmp_path / f"{split}.{lang}").write_text(f"{split} {lang} 1\n{split} {lang} 2\n\n{split} {lang} 3\n")
    return tmp_path


def documents(split: str) -> list[list[tuple[str, str]]]:
    pairs = [(f"{split} en {number}", f"{split} de {number}") for number in (1, 2, 3)]
    return [pairs[:2], pairs[2:]]


def test_the_training_text_may_be_of_several_files(folder: Path) -> None:
    own = dataset(folder, "--data", str(folder), "--training-files", "train,more")
    assert isinstance(own, DocumentFolder)
    assert own.own_documents("train", ("en", "de")) == documents("train") + documents("more")
    assert own.own_documents("test", ("en", "de")) == documents("test")
    assert set(own.digests) == {
        f"{split}.{lang}" for split in ("train", "more", "valid", "test") for lang in ("en", "de")
    }


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("train.en", "a\n\nb\n", r"Document 1, from line 1 on, has a different number of lines .* \(1\) .* \(2\)"),
        ("more.de", "a\nb\n", r"more\.de has no empty line"),
        ("test.de", "a\nb\n\nc\n\nd\n", r"test\.en has 2 documents but test\.de has 3"),
        ("valid.en", "a\nb\n\n\nc\n", r"Document 2 of .*valid\.en is empty"),
        ("valid.de", "a\nb <sep>\n\nc\n", r"Line 2 of .*valid\.de holds <sep>"),
        ("test.en", "", r"test\.en is empty"),
    ],
)
def test_bad_text_is_refused_before_anything_is_made(folder: Path, file: str, text: str, said: str) -> None:
    (folder / file).write_text(text)
    with pytest.raises(UserError, match=said):
        dataset(folder / "out", "--data", str(folder), "--training-files", "train,more")
    assert not (folder / "out").exists()


def test_made_documents_are_translated_in_either_direction(tmp_path: Path) -> None:
    sizes = ("--made-train", "3", "--made-test", "2", "--glossary", "2")
    forward, backward = (
        dataset(tmp_path, *sizes, "--source-lang", source, "--target-lang", target)
        for source, target in (("en", "de"), ("de", "en"))
    )
    ours, theirs = forward.own_documents("test", ("en", "de")), backward.own_documents("test", ("de", "en"))
    assert len(ours) == 2
    assert theirs == [[pair[::-1] for pair in document] for document in ours]
    assert ours != theirs
    assert len(forward.glossaries("train", ("en", "de"))) == 2
