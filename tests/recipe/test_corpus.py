"""The made corpus: repeatable, varied in length, and grammatical where that can be checked from outside."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from linformer_fairseq.recipe import lexicon as lex
from linformer_fairseq.recipe.corpus import Grammar, english_number, german_number, make_corpus

SIZES = {"train": 1500, "valid": 100, "test": 100}
VERBS = (*lex.TRANSITIVE, *lex.DITRANSITIVE, *lex.INTRANSITIVE)
FINITE = {form for verb in VERBS for form in (verb.prefix + verb.de, verb.prefix + verb.de_third)}
FINITE |= {"hat", "haben"} | {form for _, third, many in lex.MODALS for form in (third, many)}
MAIN_FINITE = FINITE | {form for verb in VERBS for form in (verb.de, verb.de_third)}


@pytest.fixture(scope="module")
def corpus():
    return make_corpus(SIZES, seed=1)


def test_same_seed_same_corpus(corpus):
    assert make_corpus(SIZES, seed=1) == corpus
    assert make_corpus(SIZES, seed=2) != corpus


def test_sizes_lengths_and_spread(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == SIZES
    lengths = [len(side.split()) for pairs in corpus.values() for pair in pairs for side in pair]
    assert min(lengths) == 3
    assert max(lengths) <= 60
    assert sum(length > 30 for length in lengths) > len(lengths) // 20
    assert sum(length < 10 for length in lengths) > len(lengths) // 5


def test_no_sentence_occurs_twice(corpus):
    for side in (0, 1):
        sentences = [pair[side] for pairs in corpus.values() for pair in pairs]
        assert len(set(sentences)) == len(sentences)


def test_more_training_text_keeps_the_test_set(corpus):
    assert make_corpus({**SIZES, "train": 50}, seed=1)["test"] == corpus["test"]


def test_sentences_are_written_as_sentences(corpus):
    for pairs in corpus.values():
        for pair in pairs:
            for text in pair:
                assert text[0].isupper()
                assert text.endswith(".")
                assert not any(bad in text for bad in ("  ", " ,", ",,", ",.", " ."))


@given(st.integers(0, 10**6), st.integers(3, 30))
def test_word_order(seed, size):
    clause = Grammar(str(seed)).clause(size)
    assert clause.verb_final.split()[-1] in FINITE
    assert clause.inverted.split()[0] in MAIN_FINITE
    assert sorted(clause.verb_second.split()) == sorted(clause.inverted.split())
    assert clause.verb_second.split()[0] not in MAIN_FINITE


@given(st.integers(0, 10**6), st.sampled_from(["nominative", "accusative", "dative"]))
def test_determiner_agrees_with_the_noun(seed, case):
    nouns = lex.THINGS + lex.PLACES
    phrase = Grammar(str(seed)).noun_phrase(3, case, nouns, depth=0, pronouns=False)
    words = phrase.de.split()
    ending = words[-1].lower()
    if phrase.plural:
        fitting = [noun for noun in nouns if ending.startswith(noun.de_plural.lower())] or [
            noun for noun in nouns if noun.de_plural.lower() in ending
        ]
        assert fitting
        if case == "dative":
            assert ending.endswith(("n", "s"))
        return
    genders = {noun.gender for noun in nouns if ending.endswith(noun.de.lower())}
    allowed = {
        "nominative": {"m": ("der", "ein"), "f": ("die", "eine"), "n": ("das", "ein")},
        "accusative": {"m": ("den", "einen"), "f": ("die", "eine"), "n": ("das", "ein")},
        "dative": {"m": ("dem", "einem"), "f": ("der", "einer"), "n": ("dem", "einem")},
    }[case]
    assert any(words[0] in allowed[gender] for gender in genders)


@pytest.mark.parametrize(
    ("n", "english", "german"),
    [
        (2, "two", "zwei"),
        (12, "twelve", "zwölf"),
        (21, "twenty-one", "einundzwanzig"),
        (70, "seventy", "siebzig"),
        (101, "one hundred and one", "einhunderteins"),
        (345, "three hundred and forty-five", "dreihundertfünfundvierzig"),
    ],
)
def test_numbers(n, english, german):
    assert english_number(n) == english
    assert german_number(n) == german


def test_every_number_is_one_german_word_of_its_own():
    german = [german_number(n) for n in range(1, 1000)]
    assert len(set(german)) == len(german)
    assert not any(" " in word for word in german)
    assert len({english_number(n) for n in range(1, 1000)}) == len(german)
