"""The texts that models are trained on and translate, from subwords that were written by hand."""

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.documents.datasets import DocumentFolder
from linformer_fairseq.documents.prepare import FACTS, _collect, _segment, _write_examples, _write_sets
from linformer_fairseq.documents.sets import GLOSSARIES
from linformer_fairseq.documents.sets import SIZES as FACT
from linformer_fairseq.documents.trainings import Text

SPLITS = {"train": ["a b", "c", "d", "e f", "g", "h"], "valid": ["i", "j k"], "test": ["l", "m n o", "p"]}
SIZES = {"train": [2, 4], "valid": [2], "test": [2, 1]}


def text(longest: int) -> Any:
    """What the settings say of a text from English to German."""
    return SimpleNamespace(source_lang="en", target_lang="de", max_subwords=longest)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A study's folder with subwords; the last document of the training text has a glossary."""
    for folder in ("text/raw", "text/bpe", "to"):
        (tmp_path / folder).mkdir(parents=True)
    write_json(tmp_path / "text/raw" / FACTS, {FACT: SIZES, GLOSSARIES: {"train": 1, "valid": 0, "test": 0}})
    for split, lines in SPLITS.items():
        for lang, written in (("en", lines), ("de", [line.upper() for line in lines])):
            (tmp_path / "text/bpe" / f"{split}.{lang}").write_text("".join(f"{line}\n" for line in written))
    return tmp_path


def written(out: Path, name: str) -> list[str]:
    return (out / "to" / name).read_text().splitlines()


@pytest.mark.parametrize(
    ("resolutions", "train"),
    [((1,), ["a b", "c", "d"]), ((2, None), ["a b <sep> c", "d <sep> e f <sep> g <sep> h"])],
)
def test_documents_with_a_glossary_are_used_once_and_as_far_as_they_have_it(
    out: Path, resolutions: Sequence[int | None], train: list[str]
) -> None:
    """Only their first part says what their names are."""
    _write_examples(text(20), resolutions, ("train",), out, out / "to")
    assert sorted(written(out, "train.en")) == sorted(train)
    assert [line.upper() for line in written(out, "train.en")] == [
        line.replace("<sep>", "<SEP>") for line in written(out, "train.de")
    ]


def test_a_document_with_a_glossary_ends_where_it_is_too_long(out: Path) -> None:
    _write_examples(text(7), (None,), ("train", "valid"), out, out / "to")
    assert written(out, "train.en") == ["a b <sep> c", "d <sep> e f <sep> g"]
    assert written(out, "valid.en") == ["i <sep> j k"]


def test_documents_to_translate_are_whole(out: Path) -> None:
    _write_sets(text(20), (4, 20), out, out / "to")
    assert written(out, "test.en") == ["l <sep> m n o", "p"]
    assert written(out, "long.en") == ["l <sep> m n o <sep> p"]
    assert read_json(out / "to" / "sets.json")["long"] == ["test", [[0, 3]]]


@pytest.mark.parametrize(("longest", "cuts"), [(20, (3, 20)), (3, (9, 20))])
def test_a_sentence_that_is_longer_than_the_shortest_part_is_refused(
    out: Path, longest: int, cuts: tuple[int, int]
) -> None:
    said = "Sentence 2 of document 1 of the test set has 4 subwords, its end included, more than the 3"
    with pytest.raises(UserError, match=said):
        _write_sets(text(longest), cuts, out, out / "to")


@pytest.mark.parametrize("lang", ["en", "de"])
def test_a_sentence_without_subwords_is_refused(out: Path, lang: str) -> None:
    (out / f"text/bpe/train.{lang}").write_text("a b\nc\nd\n\ng\nh\n")
    with pytest.raises(UserError, match="Sentence 2 of document 2 of the train set has no character that subwords"):
        _write_examples(text(20), (1,), ("train",), out, out / "to")


def folder_text(folder: Path, **changed: str) -> Text:
    """The settings of a text in a folder; `changed` has other lines for a split."""
    for split in SPLITS:
        for lang in ("en", "de"):
            (folder / f"{split}.{lang}").write_text(changed.get(split, "a man waits\nit rains\n\nit is late\n"))
    return Text(DocumentFolder(folder, ("train",), {}, 0, 1), "en", "de", bpe_merges=24, max_subwords=20)


def test_a_line_that_is_no_sentence_is_refused(tmp_path: Path) -> None:
    given = folder_text(tmp_path, test="a\n" + "dog " * 3000 + "\n\nb\n")
    (tmp_path / "raw").mkdir()
    with pytest.raises(UserError, match=r"Pair 2 of the test set has a line of 12,000 characters: .* split it up\.$"):
        _collect(given, tmp_path / "raw")


def test_odd_line_breaks_break_nothing(tmp_path: Path) -> None:
    given = folder_text(tmp_path, valid="a\u2028man\x85waits\nit\x0crains\n\nit is late\n")
    for name in ("raw", "bpe"):
        (tmp_path / name).mkdir()
    _collect(given, tmp_path / "raw")
    _segment(tmp_path / "raw", tmp_path / "bpe", given, 1)
    assert read_json(tmp_path / "raw" / FACTS)[FACT] == {split: [2, 1] for split in SPLITS}
    usual, odd = ((tmp_path / "bpe" / f"{split}.en").read_text() for split in ("test", "valid"))
    assert usual == odd
    assert usual.count("\n") == 3
