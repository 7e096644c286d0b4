"""A parallel English–German-like corpus, made by a small grammar.

It has what a model that compresses a sentence finds hard in this language pair: verbs that stand last in subordinate
and relative clauses, brackets of two verb parts that are as far apart as the clause is long, agreement in gender,
number and case, and compounds written as one word. The English of a sentence decides its German; sentences have 4 to
60 words.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from linformer_fairseq.recipe.texts import Pair

from .reading import numbered

MAX_WORDS = 60


class Noun(NamedTuple):
    """A noun and its plural in both languages, with the German gender."""

    en: str
    en_plural: str
    de: str
    de_plural: str
    gender: str


class Verb(NamedTuple):
    """A verb's infinitive, third person and participle in both languages, with the separable German prefix."""

    en: str
    en_third: str
    en_participle: str
    de: str
    de_third: str
    de_participle: str
    prefix: str = ""


PEOPLE = (
    Noun("man", "men", "Mann", "Männer", "m"),
    Noun("woman", "women", "Frau", "Frauen", "f"),
    Noun("child", "children", "Kind", "Kinder", "n"),
    Noun("teacher", "teachers", "Lehrer", "Lehrer", "m"),
    Noun("doctor", "doctors", "Ärztin", "Ärztinnen", "f"),
    Noun("girl", "girls", "Mädchen", "Mädchen", "n"),
    Noun("uncle", "uncles", "Onkel", "Onkel", "m"),
    Noun("queen", "queens", "Königin", "Königinnen", "f"),
)
THINGS = (
    Noun("book", "books", "Buch", "Bücher", "n"),
    Noun("letter", "letters", "Brief", "Briefe", "m"),
    Noun("lamp", "lamps", "Lampe", "Lampen", "f"),
    Noun("table", "tables", "Tisch", "Tische", "m"),
    Noun("clock", "clocks", "Uhr", "Uhren", "f"),
    Noun("picture", "pictures", "Bild", "Bilder", "n"),
    Noun("house", "houses", "Haus", "Häuser", "n"),
    Noun("bridge", "bridges", "Brücke", "Brücken", "f"),
)
COMPOUND_PARTS = (("kitchen", "Küchen"), ("garden", "Garten"), ("school", "Schul"), ("city", "Stadt"), ("toy", "Spiel"))
ADJECTIVES = (("old", "alt"), ("small", "klein"), ("big", "groß"), ("red", "rot"), ("new", "neu"), ("green", "grün"))
SURNAMES = tuple(
    map(
        "".join,
        product(
            ("Am", "Br", "Cl", "Dr", "Ew", "Fl", "Gr", "Har", "Jan", "Kr", "Lar", "Mel", "Nev", "Or", "Pr"),
            ("ab", "ed", "ig", "ol", "um", "an", "er", "is", "ot"),
            ("by", "ford", "ham", "sen", "ton", "well"),
        ),
    )
)
"""Names that are the same in both languages."""
NAMING = 0.5
"""The share of clauses in a document whose subject is such a name."""
PRONOUNS = (("he", "er", False), ("she", "sie", False), ("we", "wir", True), ("they", "sie", True))  # True: plural
VERBS = (
    Verb("see", "sees", "seen", "sehen", "sieht", "gesehen"),
    Verb("find", "finds", "found", "finden", "findet", "gefunden"),
    Verb("carry", "carries", "carried", "tragen", "trägt", "getragen"),
    Verb("buy", "buys", "bought", "kaufen", "kauft", "gekauft"),
    Verb("forget", "forgets", "forgotten", "vergessen", "vergisst", "vergessen"),
    Verb("pick up", "picks up", "picked up", "heben", "hebt", "aufgehoben", "auf"),
    Verb("watch", "watches", "watched", "schauen", "schaut", "angeschaut", "an"),
    Verb("return", "returns", "returned", "bringen", "bringt", "zurückgebracht", "zurück"),
)
MODALS = (("will", "wird", "werden"), ("can", "kann", "können"), ("must", "muss", "müssen"))
ADVERBS = (("today", "heute"), ("now", "jetzt"), ("often", "oft"), ("every day", "jeden Tag"))
PREPOSITIONS = (("behind", "hinter"), ("under", "unter"), ("next to", "neben"), ("in front of", "vor"))  # with dative
COORDINATORS = (("and", "und"), ("but", "aber"))
SUBORDINATORS = (("because", "weil"), ("although", "obwohl"), ("while", "während"), ("if", "falls"))

# the definite article and the ending of an adjective after it, then the indefinite article and its ending
AGREEMENT = {
    ("nominative", "m"): ("der", "e", "ein", "er"),
    ("nominative", "f"): ("die", "e", "eine", "e"),
    ("nominative", "n"): ("das", "e", "ein", "es"),
    ("nominative", "plural"): ("die", "en", "", ""),
    ("accusative", "m"): ("den", "en", "einen", "en"),
    ("accusative", "f"): ("die", "e", "eine", "e"),
    ("accusative", "n"): ("das", "e", "ein", "es"),
    ("accusative", "plural"): ("die", "en", "", ""),
    ("dative", "m"): ("dem", "en", "einem", "en"),
    ("dative", "f"): ("der", "en", "einer", "en"),
    ("dative", "n"): ("dem", "en", "einem", "en"),
    ("dative", "plural"): ("den", "en", "", ""),
}


@dataclass(frozen=True)
class Clause:
    """A clause in English, and the parts that German orders in three ways."""

    en: str
    subject: str
    finite: str
    middle: str
    closing: str  # what ends a main clause: a participle, an infinitive, or the prefix of the finite verb
    last: str  # all parts of the verb, as they end a subordinate clause

    @property
    def verb_second(self) -> str:
        return _join(self.subject, self.finite, self.middle, self.closing)

    @property
    def inverted(self) -> str:
        """The clause after an adverb or a subordinate clause, its finite verb first."""
        return _join(self.finite, self.subject, self.middle, self.closing)

    @property
    def verb_final(self) -> str:
        return _join(self.subject, self.middle, self.last)


class Grammar:
    """Draws sentence pairs that often name somebody, as those of real documents do; the same seed draws the same pairs.

    The other words are so few that nothing else would tell a hundred sentences of a document from each other.
    """

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pairs(self) -> Iterator[Pair]:
        """Yields sentence pairs without end, no side longer than 60 words."""
        while True:
            pair = self.sentence()
            if all(len(side.split()) <= MAX_WORDS for side in pair):
                yield pair

    def sentence(self) -> Pair:
        """Draws a sentence of one to four clauses; an adverb or a subordinate clause may stand first."""
        clauses = self.rng.choices((1, 2, 3, 4), weights=(55, 28, 12, 5))[0]
        first = self.clause()
        en, de = first.en, first.verb_second
        if self._chance(0.2):
            en_adverb, de_adverb = self.rng.choice(ADVERBS)
            en, de = _join(en_adverb, first.en), _join(de_adverb, first.inverted)
        elif clauses > 1 and self._chance(0.3):
            (en_link, de_link), second = self.rng.choice(SUBORDINATORS), self.clause()
            en = _join(en_link, first.en, ",", second.en)
            de = _join(de_link, first.verb_final, ",", second.inverted)
            clauses -= 1
        for _ in range(clauses - 1):
            clause = self.clause()
            if self._chance(0.4):
                en_link, de_link = self.rng.choice(COORDINATORS)
                en, de = _join(en, ",", en_link, clause.en), _join(de, ",", de_link, clause.verb_second)
            else:
                en_link, de_link = self.rng.choice(SUBORDINATORS)
                en, de = _join(en, en_link, clause.en), _join(de, ",", de_link, clause.verb_final)
        return _punctuated(re.sub(r"\ba (?=[aeiou])", "an ", en)), _punctuated(de)

    def clause(self) -> Clause:
        """Draws a clause of subject, verb and object, at times with a place and an adverb."""
        en_subject, subject, plural = self._subject()
        en_verb, finite, closing, last = self._verb(plural)
        en_object, middle, _ = self.noun_phrase(THINGS, "accusative", relative=0.2)
        en = _join(en_subject, en_verb, en_object)
        if self._chance(0.3):
            en_preposition, preposition = self.rng.choice(PREPOSITIONS)
            en_place, place, _ = self.noun_phrase(THINGS, "dative")
            en, middle = _join(en, en_preposition, en_place), _join(middle, preposition, place)
        if self._chance(0.3):
            en_adverb, adverb = self.rng.choice(ADVERBS)
            en, middle = _join(en, en_adverb), _join(adverb, middle)  # before the object in German
        return Clause(en, subject, finite, middle, closing, last)

    def _subject(self) -> tuple[str, str, bool]:
        """Draws a name, a pronoun or a noun phrase; returns English, German, and whether it is plural."""
        if self._chance(NAMING):
            name = self.rng.choice(SURNAMES)
            return name, name, False
        if self._chance(0.25):
            return self.rng.choice(PRONOUNS)
        return self.noun_phrase(PEOPLE, "nominative", relative=0.2)

    def _verb(self, plural: bool) -> tuple[str, str, str, str]:
        """Returns an English verb, and `finite`, `closing` and `last` of its `Clause`, in one of three tenses."""
        verb = self.rng.choice(VERBS)
        tense = self.rng.random()
        if tense < 0.4:
            finite = verb.de if plural else verb.de_third
            return verb.en if plural else verb.en_third, finite, verb.prefix, verb.prefix + finite
        if tense < 0.7:
            en, finite = ("have", "haben") if plural else ("has", "hat")
            return f"{en} {verb.en_participle}", finite, verb.de_participle, f"{verb.de_participle} {finite}"
        en, third, many = self.rng.choice(MODALS)
        finite, infinitive = many if plural else third, verb.prefix + verb.de
        return f"{en} {verb.en}", finite, infinitive, f"{infinitive} {finite}"

    def noun_phrase(self, nouns: tuple[Noun, ...], case: str, relative: float = 0.0) -> tuple[str, str, bool]:
        """Draws a noun phrase, at times with a relative clause; returns English, German, and whether it is plural."""
        noun, plural = self.rng.choice(nouns), self._chance(0.3)
        en_noun, de_noun = (noun.en_plural, noun.de_plural) if plural else (noun.en, noun.de)
        if plural and case == "dative" and not de_noun.endswith("n"):
            de_noun += "n"
        if nouns is THINGS and self._chance(0.35):
            en_part, de_part = self.rng.choice(COMPOUND_PARTS)
            en_noun, de_noun = f"{en_part} {en_noun}", de_part + de_noun.lower()
        form = "plural" if plural else noun.gender
        definite, weak, indefinite, mixed = AGREEMENT[case, form]
        en_article, article, ending = "the", definite, weak
        if indefinite and self._chance(0.4):
            en_article, article, ending = "a", indefinite, mixed
        adjectives = self.rng.sample(ADJECTIVES, self.rng.choices((0, 1, 2), weights=(50, 35, 15))[0])
        en = _join(en_article, *(adjective for adjective, _ in adjectives), en_noun)
        de = _join(article, *(adjective + ending for _, adjective in adjectives), de_noun)
        if self._chance(relative):
            en_subject, subject, subject_plural = self.noun_phrase(PEOPLE, "nominative")
            en_verb, _, _, last = self._verb(subject_plural)
            en = _join(en, "that", en_subject, en_verb)
            de = _join(de, ",", AGREEMENT["accusative", form][0], subject, last, ",")
        return en, de, plural


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


def _punctuated(words: str) -> str:
    """Makes a sentence of words and commas."""
    text = re.sub("( ,)+", ",", words).rstrip(",")
    return text[0].upper() + text[1:] + "."


def make_documents(sizes: dict[str, int], seed: int) -> dict[str, list[list[Pair]]]:
    """Returns documents of 8 to 120 sentence pairs for every split, independent of each other but for their numbers."""
    documents: dict[str, list[list[Pair]]] = {}
    for split, size in sizes.items():
        grammar = Grammar(f"made documents {seed} {split}")
        pairs = grammar.pairs()
        documents[split] = [numbered([next(pairs) for _ in range(grammar.rng.randint(8, 120))]) for _ in range(size)]
    return documents
