"""Texts are cut into the pretraining's subwords, and to the length of its models."""

from dataclasses import replace
from pathlib import Path

import pytest

from linformer_fairseq.classification.prepare import _segment, set_facts
from linformer_fairseq.classification.pretrained import Pretrained, find_pretrained
from linformer_fairseq.classification.sets import TextSet, read_sets
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe.subwords import learn_sentencepiece
from linformer_fairseq.recipe.texts import read_lines
from tests.classification.made import examples, pretend, pretraining, write_set
from tests.masked_lm.made_text import write_books


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Pretrained:
    folder = pretend(pretraining(tmp_path_factory.mktemp("books"), tmp_path_factory.mktemp("pretrained") / "out"))
    books = write_books(folder / "books")
    learn_sentencepiece(list(books.iterdir()), folder / "pieces", 60, 1, "--vocabulary")
    return find_pretrained(folder, ["transformer"], None, None)


@pytest.fixture
def texts(tmp_path: Path) -> TextSet:
    return read_sets(write_set(tmp_path / "weather"), [])[0]


def segment(texts: TextSet, pretrained: Pretrained, to: Path, truncate: bool = True) -> list[list[str]]:
    (to / "pieces").mkdir()
    _segment(texts, pretrained, truncate, to / "pieces")
    return [line.split() for line in read_lines(to / "pieces" / "input0" / "test")]


def plain(pieces: list[str]) -> str:
    return "".join(pieces).replace("▁", " ").strip()


def test_texts_and_classes(texts: TextSet, pretrained: Pretrained, tmp_path: Path) -> None:
    found = segment(texts, pretrained, tmp_path, truncate=False)
    assert [plain(pieces) for pieces in found] == [text for _, text in examples("test")]
    assert read_lines(tmp_path / "pieces" / "label" / "dict.txt") == ["0 1", "1 1"]
    for split, subset in {"train": "train", "dev": "valid", "test": "test"}.items():
        classes = [str(int(label == "rain")) for label, _ in examples(split)]
        assert read_lines(tmp_path / "pieces" / "label" / subset) == classes
    lengths = [len(pieces) + 2 for pieces in found]
    assert set_facts(tmp_path)["test"] == {
        "texts": 9,
        "mean": pytest.approx(sum(lengths) / 9),
        "longest": max(lengths),
        "cut": 0,
    }


def test_the_beginning_of_long_texts_is_kept(texts: TextSet, pretrained: Pretrained, tmp_path: Path) -> None:
    whole, short = tmp_path / "whole", tmp_path / "short"
    for folder in (whole, short):
        folder.mkdir()
    before = segment(texts, pretrained, whole)
    lengths = sorted(len(pieces) + 2 for pieces in before)
    after = segment(texts, replace(pretrained, length=lengths[-3]), short)
    assert [pieces[: lengths[-3] - 2] for pieces in before] == after != before
    facts = set_facts(short)["test"]
    assert facts["cut"] == sum(length > lengths[-3] for length in lengths) > 0
    assert facts["mean"] == set_facts(whole)["test"]["mean"]  # before they were cut


def test_long_texts_are_refused_if_they_may_not_be_cut(texts: TextSet, pretrained: Pretrained, tmp_path: Path) -> None:
    said = r"Line \d+ of .*train\.tsv has \d+ tokens, but the models take 8: leave out --no-truncate, or choose a great"
    with pytest.raises(UserError, match=said):
        segment(texts, replace(pretrained, length=8), tmp_path, truncate=False)


def test_a_text_that_just_fits_is_not_cut(texts: TextSet, pretrained: Pretrained, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        (tmp_path / folder).mkdir()
    segment(texts, pretrained, tmp_path / "first")
    longest = max(facts["longest"] for facts in set_facts(tmp_path / "first").values())
    segment(texts, replace(pretrained, length=longest), tmp_path / "second", truncate=False)
    assert set_facts(tmp_path / "second") == set_facts(tmp_path / "first")
    assert not any(facts["cut"] for facts in set_facts(tmp_path / "second").values())


def test_a_text_of_nothing_is_refused(texts: TextSet, pretrained: Pretrained, tmp_path: Path) -> None:
    texts.splits["dev"][3] = texts.splits["dev"][3]._replace(text="\u200b")  # of no width, and no space to Python
    with pytest.raises(
        UserError, match=r"Line 5 of .*dev\.tsv has a text without any letter: fill it in, or remove it"
    ):
        segment(texts, pretrained, tmp_path)
