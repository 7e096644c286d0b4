"""The synthetic corpus: repeatable, varied in length, and grammatical where that can be checked from outside."""

import re
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.documents.corpus import (
    MODALS,
    PEOPLE,
    SURNAMES,
    THINGS,
    VERBS,
    Grammar,
    make_documents,
)

FINITE = {"hat", "haben"} | {form for _, third, many in MODALS for form in (third, many)}
FINITE_LAST = FINITE | {verb.prefix + form for verb in VERBS for form in (verb.de, verb.de_third)}
FINITE_FIRST = FINITE | {form for verb in VERBS for form in (verb.de, verb.de_third)}
ARTICLES = {
    "nominative": {"m": {"der", "ein"}, "f": {"die", "eine"}, "n": {"das", "ein"}, "plural": {"die"}},
    "accusative": {"m": {"den", "einen"}, "f": {"die", "eine"}, "n": {"das", "ein"}, "plural": {"die"}},
    "dative": {"m": {"dem", "einem"}, "f": {"der", "einer"}, "n": {"dem", "einem"}, "plural": {"den"}},
}


@pytest.fixture(scope="module")
def corpus() -> list[tuple[str, str]]:
    return list(islice(Grammar("1").pairs(), 1500))


def test_same_seed_same_documents() -> None:
    sizes = {"train": 3, "test": 2}
    assert make_documents(sizes, 1) == make_documents(sizes, 1) != make_documents(sizes, 2)
    assert make_documents({"test": 2}, 1)["test"] == make_documents(sizes, 1)["test"]


def test_lengths_and_spread(corpus):
    lengths = [len(side.split()) for pair in corpus for side in pair]
    assert min(lengths) >= 3
    assert max(lengths) <= 60
    assert sum(length > 30 for length in lengths) > len(lengths) // 20
    assert sum(length < 10 for length in lengths) > len(lengths) // 5


def test_sentences_are_written_as_sentences(corpus):
    for text in (side for pair in corpus for side in pair):
        assert text[0].isupper()
        assert text.endswith(".")
        assert not any(bad in text for bad in ("  ", " ,", ",,", ",.", " ."))


@given(st.integers(0, 10**6))
def test_word_order(seed):
    clause = Grammar(str(seed)).clause()
    assert clause.verb_final.split()[-1] in FINITE_LAST
    assert clause.inverted.split()[0] in FINITE_FIRST
    assert sorted(clause.verb_second.split()) == sorted(clause.inverted.split())
    assert clause.verb_second.split()[0] not in FINITE_FIRST
    assert clause.verb_second.startswith(f"{clause.subject} {clause.finite} ")
    assert sorted(clause.verb_final.replace(" ", "")) == sorted(clause.verb_second.replace(" ", ""))


@given(st.integers(0, 10**6), st.sampled_from(list(ARTICLES)), st.sampled_from([PEOPLE, THINGS]))
def test_the_article_agrees_with_the_noun(seed, case, nouns):
    _, de, plural = Grammar(str(seed)).noun_phrase(nouns, case)
    article, *_, noun = de.split()
    fitting = [
        known
        for known in nouns
        if noun.lower().endswith((known.de_plural if plural else known.de).lower())
        or (plural and case == "dative" and noun.lower().endswith(known.de_plural.lower() + "n"))
    ]
    assert any(article in ARTICLES[case]["plural" if plural else known.gender] for known in fitting)
    assert noun.endswith("n") or not (plural and case == "dative")


def test_compounds_are_one_word_in_german_alone(corpus):
    pairs = [pair for pair in corpus if " garden " in pair[0]]
    assert len(pairs) > 50
    assert all("Garten" in de and " Garten " not in de for _, de in pairs)


def test_documents_name_people_in_both_languages_alike():
    pairs = [pair for document in make_documents({"train": 10}, 3)["train"] for pair in document]
    named = [[word for word in re.findall(r"\w+", side) if word in SURNAMES] for pair in pairs for side in pair]
    assert named[::2] == named[1::2]
    assert 0.3 < sum(map(bool, named)) / len(named) < 0.8
