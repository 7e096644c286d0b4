"""Reading documents, and what is refused."""

import gzip
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents.reading import grouped, read_documents

EN = "A man waits.\nThe dog sleeps.\n\nIt rains.\n"
DE = "Ein Mann wartet.\nDer Hund schläft.\n\nEs regnet.\n"


def documents(folder: Path, en: str, de: str = DE) -> list[list[tuple[str, str]]]:
    (folder / "train.en").write_text(en, encoding="utf-8")
    (folder / "train.de").write_text(de, encoding="utf-8")
    return read_documents(folder, "train", "en", "de")


def test_documents_are_divided_by_empty_lines(tmp_path: Path) -> None:
    wanted = [
        [("A man waits.", "Ein Mann wartet."), ("The dog sleeps.", "Der Hund schläft.")],
        [("It rains.", "Es regnet.")],
    ]
    assert documents(tmp_path, EN) == wanted
    assert documents(tmp_path, EN + "\n") == wanted  # an empty line ends the last document too
    assert documents(tmp_path, EN + "\n\n \n") == wanted
    (tmp_path / "train.en").unlink()
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(EN.encode()))
    assert read_documents(tmp_path, "train", "en", "de") == wanted


@pytest.mark.parametrize(
    ("en", "said"),
    [
        ("", "train.en is empty: give it a sentence a line, with an empty line between two documents"),
        ("\n\n", "train.en is empty"),
        ("A man waits.\nIt rains.\n", "has no empty line, so that it would be a single document"),
        ("A man waits.\nIt rains.\n\n", "has no empty line, so that it would be a single document"),
        ("A.\nB.\n\nC.\n\nD.\n", r"train.en has 3 documents but train.de has 2: add the translation of the last ones"),
        ("A.\n\nB.\n\nC.\n", r"Document 1, from line 1 on, has a different number of lines"),
        (
            "A.\n\nB.\n",
            r"Document 1, from line 1 on, has .* in .*train.en \(1\) and in train.de \(2\): line n of one must",
        ),
        ("A.\nB.\n\nC.\nD.\n", r"Document 2, from line 4 on, has .* in .*train.en \(2\) and in train.de \(1\): line n"),
        ("A.\nB.\n\n\nC.\n", "Document 2 of .*train.en is empty: let one empty line alone stand"),
        ("\nA.\nB.\n\nC.\n", "Document 1 of .*train.en is empty: .* and none at the beginning"),
        ("A.\nB <sep> C.\n\nD.\n", "Line 2 of .*train.en holds <sep>, which stands between sentences: remove it"),
    ],
)
def test_refusals(tmp_path: Path, en: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refused:
        documents(tmp_path, en)
    assert re.fullmatch(r"[^\n]+\.", str(refused.value))


def test_a_missing_side_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text(EN)
    with pytest.raises(UserError, match=r"train.de is missing"):
        read_documents(tmp_path, "train", "en", "de")


@given(st.lists(st.integers(1, 5), max_size=6))
def test_grouped_sentences_are_all_sentences_in_order(sizes: list[int]) -> None:
    found = list(grouped(range(sum(sizes)), sizes))
    assert [len(own) for own in found] == sizes
    assert [sentence for own in found for sentence in own] == list(range(sum(sizes)))
