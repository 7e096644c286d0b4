"""Made documents that begin with a glossary."""

import re

from linformer_fairseq.documents.glossary import NAMES, SIZES, TRANSLATIONS, glossary_documents, mentions


def test_a_name_is_what_its_glossary_says_everywhere_in_its_document() -> None:
    for document in glossary_documents("train", 30, seed=1):
        assert len(document) in SIZES
        assert [tuple(side.split()[0] for side in pair) for pair in document] == [
            (str(number), str(number)) for number in range(1, len(document) + 1)
        ]
        entries = [source.split(" ", 1)[1].split(" = ") for source, target in document if source == target]
        assert len(entries) == min(6, len(document) // 2)
        assert len({name for name, _ in entries}) == len({told for _, told in entries}) == len(entries)
        told = dict(entries)
        for source, target in document[len(entries) :]:
            names = [word for word in re.findall(r"\w+", source) if word in NAMES]
            assert sorted(told[name] for name in names) == sorted(
                word for word in re.findall(r"\w+", target) if word in TRANSLATIONS
            )


def test_the_other_direction_translates_the_same_names() -> None:
    there, back = (glossary_documents("test", 150, 1, lang) for lang in ("en", "de"))
    assert len(there) == len(back) == 3
    names = re.compile("|".join((*NAMES, *TRANSLATIONS)))
    for ours, theirs in zip(there, back, strict=True):
        assert ours[:6] == theirs[:6]
        for (english, german), (source, target) in zip(ours[6:], theirs[6:], strict=True):
            assert (names.sub("?", source), names.sub("?", target)) == (names.sub("?", german), names.sub("?", english))
        found, expected = ([*mentions([source for source, _ in document])] for document in (theirs, ours))
        assert sorted(found) == sorted(expected)
        assert found


def test_a_name_has_the_same_line_in_every_glossary() -> None:
    for document in glossary_documents("train", 30, seed=1):
        lines = [source.split() for source, target in document if source == target]
        assert [name for _, name, _, _ in lines] == list(NAMES[: len(lines)])


def test_translations_are_drawn_anew_for_each_document() -> None:
    told: dict[str, set[str]] = {}
    for document in glossary_documents("train", 200, seed=1):
        for source, _ in document:
            if " = " in source:
                name, translation = source.split(" ", 1)[1].split(" = ")
                told.setdefault(name, set()).add(translation)
    assert all(len(translations) > 5 for translations in told.values())


def test_splits_and_seeds_have_other_documents() -> None:
    assert glossary_documents("train", 0, 1) == glossary_documents("test", 0, 1) == []
    for training, valid, test in ((1, 1, 1), (9, 2, 2), (250, 4, 5), (10_000, 4, 24)):
        sizes = [len(glossary_documents(split, training, 1)) for split in ("train", "valid", "test")]
        assert sizes == [training, valid, test]
    assert glossary_documents("test", 9, 1) == glossary_documents("test", 9, 1) != glossary_documents("test", 9, 2)
    assert glossary_documents("valid", 4, 1) != glossary_documents("test", 4, 1)


def test_mentions_are_the_names_of_later_sentences() -> None:
    sources = [
        "1 Gulkor = Amara",
        "2 Beldan = Obara",
        "3 Beldan sees Gulkor.",
        "4 It rains.",
        "5 If Dorwix naps, Beldan and Beldan wait.",
    ]
    assert list(mentions(sources)) == [(2, 2, 1, "Obara"), (2, 2, 0, "Amara"), (2, 4, 2, "Obara")]


def test_names_are_far_from_each_other_in_the_test_set() -> None:
    test, valid = (
        [
            mention.sentence - mention.last
            for document in glossary_documents(split, 1200, 1)
            for mention in mentions([source for source, _ in document])
        ]
        for split in ("test", "valid")
    )
    assert sum(distance > 16 for distance in test) > len(test) / 2
    assert sum(distance > 16 for distance in valid) < len(valid) / 4
