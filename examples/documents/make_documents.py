#!/usr/bin/env python3
"""Writes synthetic English-German documents, {train,valid,test}.{en,de}, into a folder; the same for the same seed.

One sentence per line, an empty line between documents. Every sentence begins with its number, as verses and clauses of
laws do. The first lines of a document are a glossary, `3 Fimwix = Oruto`, whose translations are drawn anew for each
document: nothing else says how these names are translated where they recur. They are frequent in training but rare in
the test set, where the previous occurrence of a name is far back. So a model that sees single sentences translates
hardly any name right, while one that uses distant context can translate them all. Everything else is translated
sentence by sentence: a small grammar with German genders, cases, separable verbs, and verbs at the end of clauses.
"""

import argparse
import filecmp
import os
import random
import re
import tempfile
from itertools import product
from pathlib import Path
from typing import NamedTuple

Pair = tuple[str, str]
Document = list[Pair]

NAMES = ("Belkor", "Dordan", "Fimwix", "Gulkor", "Kasdan", "Lemwix")
"""Names in English, each always in the same line of a glossary: small models learn to look there within minutes."""
TRANSLATIONS = tuple(
    map("".join, product(("Ama", "Eli", "Iso", "Oru", "Uma", "Yla", "Esa", "Oba"), ("ra", "ne", "to")))
)
"""What a glossary may give as their German."""
NAMED = {"train": 0.7, "valid": 0.7, "test": 0.15}
"""The share of clauses whose subject is a name of the glossary."""
SHORTEST = 5
"""Sentences of the shortest documents in the training set; in the other sets all are as long as the longest."""


class Noun(NamedTuple):
    en: str
    de: str
    gender: str


class Verb(NamedTuple):
    """The third person and the infinitive in both languages, and the prefix that German separates."""

    en: str
    en_infinitive: str
    de: str
    de_infinitive: str
    prefix: str = ""


def nouns(table: str) -> list[Noun]:
    return [Noun(*entry.split("/")) for entry in table.split()]


PEOPLE = nouns("man/Mann/m woman/Frau/f child/Kind/n teacher/Lehrer/m queen/Königin/f girl/Mädchen/n uncle/Onkel/m")
THINGS = nouns("book/Buch/n letter/Brief/m lamp/Lampe/f table/Tisch/m clock/Uhr/f picture/Bild/n box/Kiste/f hat/Hut/m")
PLACES = nouns("house/Haus/n bridge/Brücke/f tree/Baum/m garden/Garten/m church/Kirche/f car/Auto/n wall/Mauer/f")
ADJECTIVES = [("old", "alt"), ("small", "klein"), ("big", "groß"), ("red", "rot"), ("new", "neu"), ("green", "grün")]
VERBS = [
    Verb("sees", "see", "sieht", "sehen"),
    Verb("finds", "find", "findet", "finden"),
    Verb("carries", "carry", "trägt", "tragen"),
    Verb("buys", "buy", "kauft", "kaufen"),
    Verb("forgets", "forget", "vergisst", "vergessen"),
    Verb("picks up", "pick up", "hebt", "heben", "auf"),
    Verb("watches", "watch", "schaut", "schauen", "an"),
    Verb("returns", "return", "bringt", "bringen", "zurück"),
]
MODALS = [("can", "kann"), ("must", "muss"), ("will", "wird")]
PREPOSITIONS = [("behind", "hinter"), ("under", "unter"), ("near", "neben"), ("before", "vor")]  # with dative
LINKS = [("because", "weil"), ("while", "während"), ("although", "obwohl")]
ARTICLES = {
    "nominative": {"m": "der", "f": "die", "n": "das"},
    "accusative": {"m": "den", "f": "die", "n": "das"},
    "dative": {"m": "dem", "f": "der", "n": "dem"},
}


class Grammar(random.Random):
    """Draws documents; the same seed draws the same ones.

    Args:
        named: the share of clauses whose subject is a name of the document's glossary.
    """

    def __init__(self, seed: str, *, named: float) -> None:  # Python 3.10 lets Random have one positional argument
        super().__init__(seed)
        self.named = named

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def document(self, size: int) -> Document:
        """Draws a document of so many sentences, the first ones of which are a glossary: six, or half of them."""
        count = min(len(NAMES), size // 2)
        glossary = list(zip(NAMES, self.sample(TRANSLATIONS, count), strict=False))
        sentences = [(line, line) for line in map(" = ".join, glossary)]
        sentences += [self.sentence(glossary) for _ in range(size - count)]
        return [(f"{number} {en}", f"{number} {de}") for number, (en, de) in enumerate(sentences, 1)]

    def sentence(self, glossary: list[Pair]) -> Pair:
        """Draws a sentence of one clause or two."""
        en, subject, finite, middle, closing, _ = self.clause(glossary)
        de = f"{subject} {finite} {middle} {closing}".rstrip()
        if self.chance(0.15):
            (en_link, link), (en_second, subject, _, middle, _, last) = self.choice(LINKS), self.clause(glossary)
            en, de = f"{en} {en_link} {en_second}", f"{de}, {link} {subject} {middle} {last}"
        return f"{en}.", f"{de}."

    def clause(self, glossary: list[Pair]) -> tuple[str, str, str, str, str, str]:
        """Draws who does what, at times where.

        Returns English, and of the German subject, finite verb and middle, what ends a main clause (an infinitive, or
        the prefix of the finite verb), and all parts of the verb, as they end a subordinate clause.
        """
        named = glossary and self.chance(self.named)
        en_subject, subject = self.choice(glossary) if named else self.noun_phrase(PEOPLE, "nominative")
        verb = self.choice(VERBS)
        en_verb, finite, closing, last = verb.en, verb.de, verb.prefix, verb.prefix + verb.de
        if self.chance(0.2):
            en_modal, finite = self.choice(MODALS)
            en_verb, closing = f"{en_modal} {verb.en_infinitive}", verb.prefix + verb.de_infinitive
            last = f"{closing} {finite}"
        en_object, middle = self.noun_phrase(THINGS, "accusative")
        en = f"{en_subject} {en_verb} {en_object}"
        if self.chance(0.3):
            en_preposition, preposition = self.choice(PREPOSITIONS)
            en_place, place = self.noun_phrase(PLACES, "dative")
            en, middle = f"{en} {en_preposition} {en_place}", f"{middle} {preposition} {place}"
        return en, subject, finite, middle, closing, last

    def noun_phrase(self, known: list[Noun], case: str) -> Pair:
        noun = self.choice(known)
        article = ARTICLES[case][noun.gender]
        if not self.chance(0.4):
            return f"the {noun.en}", f"{article} {noun.de}"
        en, de = self.choice(ADJECTIVES)
        ending = "e" if article in ("der", "die", "das") and case != "dative" else "en"
        return f"the {en} {noun.en}", f"{article} {de}{ending} {noun.de}"


def make(seed: int, sizes: dict[str, int], longest: int) -> dict[str, list[Document]]:
    """Returns documents for every split.

    Args:
        longest: sentences of the longest documents. Of those of the training set as many sentences are in documents of
            that size as in those of half of it, a quarter and so on.
    """
    lengths = [longest >> n for n in range(longest.bit_length()) if longest >> n >= SHORTEST]
    documents = {}
    for split, size in sizes.items():
        grammar = Grammar(f"made documents {seed} {split}", named=NAMED[split])
        drawn = grammar.choices(lengths, [1 / n for n in lengths], k=size) if split == "train" else [longest] * size
        documents[split] = [grammar.document(length) for length in drawn]
    return documents


def write(folder: Path, documents: dict[str, list[Document]]) -> None:
    """Writes a new folder beside and renames it, so that a text is complete where there is one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
        made = Path(beside, "text")
        made.mkdir()
        for split, own in documents.items():
            for side, lang in enumerate(("en", "de")):
                text = "\n".join("".join(f"{pair[side]}\n" for pair in document) for document in own)
                (made / f"{split}.{lang}").write_text(text, encoding="utf-8")
        try:
            made.rename(folder)  # replaces an empty folder, and no other
        except OSError:
            if filecmp.cmpfiles(made, folder, os.listdir(made), shallow=False)[1:] != ([], []):
                raise OSError(f"{folder} holds something else: name a new folder") from None


def main() -> None:
    """Reads the command line and writes the documents."""
    parser = argparse.ArgumentParser(description="Writes made documents with glossaries.", allow_abbrev=False)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where {train,valid,test}.{en,de} go")
    numbers = {"seed": "1", "train": "2000", "valid": "8", "test": "24", "longest": "48"}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", default=default, metavar="N", help=f"default: {default}")
    args = vars(parser.parse_args())
    for name in numbers:
        if not re.fullmatch("[1-9][0-9]{0,5}", args[name]):
            parser.exit(2, f"error: --{name} {args[name]} is not a whole number from 1 to 999999\n")
    seed, *sizes, longest = (int(args[name]) for name in numbers)
    if longest < SHORTEST:
        parser.exit(2, f"error: --longest {longest} is fewer than the {SHORTEST} sentences of the shortest documents\n")
    try:
        write(args["folder"], make(seed, dict(zip(("train", "valid", "test"), sizes, strict=True)), longest))
    except OSError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
