"""A parallel English–German-like corpus made on the spot from a small grammar.

It has what makes this language pair hard for a model that compresses a sentence: verbs that move to the end of
subordinate clauses and into the second half of a bracket, separable prefixes, agreement in gender, number and
case, compounds written as one word and numbers read backwards. Sentences have 3 to 60 words.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from . import lexicon as lex
from .pairs import Pair

Case = Literal["nominative", "accusative", "dative"]

MIN_WORDS, MAX_WORDS = 3, 60

DEFINITE: dict[Case, dict[str, str]] = {
    "nominative": {"m": "der", "f": "die", "n": "das", "plural": "die"},
    "accusative": {"m": "den", "f": "die", "n": "das", "plural": "die"},
    "dative": {"m": "dem", "f": "der", "n": "dem", "plural": "den"},
}
INDEFINITE: dict[Case, dict[str, str]] = {
    "nominative": {"m": "ein", "f": "eine", "n": "ein"},
    "accusative": {"m": "einen", "f": "eine", "n": "ein"},
    "dative": {"m": "einem", "f": "einer", "n": "einem"},
}
# Adjective endings after the definite article, after the indefinite one, and after a bare number.
WEAK: dict[Case, dict[str, str]] = {
    "nominative": {"m": "e", "f": "e", "n": "e", "plural": "en"},
    "accusative": {"m": "en", "f": "e", "n": "e", "plural": "en"},
    "dative": {"m": "en", "f": "en", "n": "en", "plural": "en"},
}
MIXED: dict[Case, dict[str, str]] = {
    "nominative": {"m": "er", "f": "e", "n": "es"},
    "accusative": {"m": "en", "f": "e", "n": "es"},
    "dative": {"m": "en", "f": "en", "n": "en"},
}
STRONG_PLURAL: dict[Case, str] = {"nominative": "e", "accusative": "e", "dative": "en"}
RELATIVE: dict[Case, dict[str, str]] = {**DEFINITE, "dative": {**DEFINITE["dative"], "plural": "denen"}}


def english_number(n: int) -> str:
    """345 -> "three hundred and forty-five"."""
    if n < 20:
        return lex.ONES_EN[n]
    if n < 100:
        return lex.TENS_EN[n // 10] + (f"-{lex.ONES_EN[n % 10]}" if n % 10 else "")
    rest = f" and {english_number(n % 100)}" if n % 100 else ""
    return f"{lex.ONES_EN[n // 100]} hundred{rest}"


def german_number(n: int) -> str:
    """345 -> "dreihundertfünfundvierzig": one word, ones before tens."""
    if n < 20:
        return lex.ONES_DE[n]
    if n < 100:
        ones = "ein" if n % 10 == 1 else lex.ONES_DE[n % 10]
        return (f"{ones}und" if n % 10 else "") + lex.TENS_DE[n // 10]
    hundreds = "ein" if n // 100 == 1 else lex.ONES_DE[n // 100]
    return f"{hundreds}hundert" + (german_number(n % 100) if n % 100 else "")


def dative_plural(noun: str) -> str:
    """The dative plural adds -n unless the plural ends in -n or -s."""
    return noun if noun.endswith(("n", "s")) else noun + "n"


@dataclass(frozen=True)
class NounPhrase:
    """A noun phrase in both languages, the German one in the case its place asks for."""

    en: str
    de: str
    plural: bool


@dataclass(frozen=True)
class Verbal:
    """A verb in some tense, cut into the parts that German puts into different places.

    Main clause: finite ... `closing`; subordinate clause: ... `at_end`.
    """

    en: str
    en_particle: str
    finite: str
    closing: str
    at_end: str


@dataclass(frozen=True)
class Clause:
    """A clause in English and in the three German word orders."""

    en: str
    verb_second: str  # subject first
    inverted: str  # verb first: what follows a fronted phrase
    verb_final: str


def _join(*parts: str) -> str:
    return " ".join(part for part in parts if part)


class Grammar:
    """Draws sentence pairs; the same seed draws the same pairs."""

    def __init__(self, seed: str):
        self.rng = random.Random(seed)

    def pairs(self) -> Iterator[Pair]:
        """Endless sentence pairs, each side of 3 to 60 words."""
        while True:
            pair = self.sentence(self._target_length())
            if all(MIN_WORDS <= len(side.split()) <= MAX_WORDS for side in pair):
                yield pair

    def _target_length(self) -> int:
        """Mostly short sentences with a long tail, so that a tiny model learns and distance still matters."""
        low, high = self.rng.choices([(3, 8), (9, 18), (19, 32), (33, 56)], weights=[35, 35, 20, 10])[0]
        return self.rng.randint(low, high)

    def _chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def sentence(self, target: int) -> Pair:
        """A sentence of about `target` English words: main clauses and subordinate ones in a chain."""
        clauses = 1
        while target / clauses > 8 and (target / clauses > 13 or self._chance(0.5)):
            clauses += 1
        en, de = self._opening(target // clauses, clauses)
        used = 1 if clauses == 1 else 2
        for _ in range(clauses - used):
            clause = self.clause(target // clauses)
            if self._chance(0.5):
                en_link, de_link = self.rng.choice(lex.COORDINATORS)
                en, de = _join(en, ",", en_link, clause.en), _join(de, ",", de_link, clause.verb_second)
            else:
                en_link, de_link = self.rng.choice(lex.SUBORDINATORS)
                en, de = _join(en, en_link, clause.en), _join(de, ",", de_link, clause.verb_final)
        return _finish(re.sub(r"\b(a) (?=[aeiou])", r"\1n ", en)), _finish(de)

    def _opening(self, size: int, clauses: int) -> Pair:
        """The first clause, or the first two where one depends on the other."""
        if clauses == 1:
            clause = self.clause(size)
            if size > 4 and self._chance(0.3):
                en, de = self.rng.choice(lex.ADVERBS)
                return _join(en, clause.en), _join(de, clause.inverted)
            return clause.en, clause.verb_second
        first, second = self.clause(size), self.clause(size)
        kind = self.rng.random()
        if kind < 0.35:
            en, de = self.rng.choice(lex.SUBORDINATORS)
            return (
                _join(en, first.en, ",", second.en),
                _join(de, first.verb_final, ",", second.inverted),
            )
        if kind < 0.6:
            who = self.noun_phrase(2, "nominative", lex.PEOPLE, depth=0)
            en_one, en_many, de_one, de_many = self.rng.choice(lex.REPORTING)
            en = _join(who.en, en_many if who.plural else en_one, "that", first.en)
            de = _join(who.de, de_many if who.plural else de_one, ", dass", first.verb_final)
            en_link, de_link = self.rng.choice(lex.COORDINATORS)
            return _join(en, ",", en_link, second.en), _join(de, ",", de_link, second.verb_second)
        en, de = self.rng.choice(lex.SUBORDINATORS)
        return _join(first.en, en, second.en), _join(first.verb_second, ",", de, second.verb_final)

    def clause(self, size: int) -> Clause:
        """A clause of about `size` English words."""
        spare = max(0, size - 4)
        subject_share = self.rng.randint(0, spare)
        subject = self.noun_phrase(2 + subject_share, "nominative", lex.PEOPLE)
        spare -= subject_share
        en_middle, de_middle = [], []
        if size < 4 or (spare < 3 and self._chance(0.25)):
            verb = self.verbal(self.rng.choice(lex.INTRANSITIVE), subject.plural, size)
        elif spare >= 3 and self._chance(0.3):
            verb = self.verbal(self.rng.choice(lex.DITRANSITIVE), subject.plural, size)
            receiver = self.noun_phrase(2, "dative", lex.PEOPLE, depth=0, pronouns=False)
            gift = self.noun_phrase(spare, "accusative", lex.THINGS)
            en_middle += [receiver.en, gift.en]
            de_middle += [receiver.de, gift.de]
            spare -= 3
        else:
            verb = self.verbal(self.rng.choice(lex.TRANSITIVE), subject.plural, size)
            nouns = lex.THINGS if verb.en_particle or self._chance(0.7) else lex.PEOPLE
            found = self.noun_phrase(2 + spare // 2, "accusative", nouns, pronouns=False)
            en_middle += [found.en]
            de_middle += [found.de]
            spare -= spare // 2
        en_end = []
        if spare >= 1 and self._chance(0.35):
            en_adverb, de_adverb = self.rng.choice(lex.ADVERBS)
            en_end.append(en_adverb)
            de_middle.insert(0, de_adverb)  # time stands before the objects in German
            spare -= 1
        if spare >= 3 and self._chance(0.6):
            en_place, de_place = self.place(spare)
            en_middle.append(en_place)
            de_middle.append(de_place)
        middle = _join(*de_middle)
        return Clause(
            en=_join(subject.en, verb.en, *en_middle[:1], verb.en_particle, *en_middle[1:], *en_end),
            verb_second=_join(subject.de, verb.finite, middle, verb.closing),
            inverted=_join(verb.finite, subject.de, middle, verb.closing),
            verb_final=_join(subject.de, middle, verb.at_end),
        )

    def place(self, size: int) -> Pair:
        """A prepositional phrase of place, with the dative in German."""
        en, de = self.rng.choice(lex.PLACE_PREPOSITIONS)
        where = self.noun_phrase(size - 1, "dative", lex.PLACES, depth=0, pronouns=False)
        return _join(en, where.en), _join(de, where.de)

    def noun_phrase(
        self, size: int, case: Case, nouns: tuple[lex.Noun, ...], depth: int = 1, pronouns: bool = True
    ) -> NounPhrase:
        """A noun phrase of about `size` English words; `depth` bounds nested relative clauses."""
        if size <= 2 and case == "nominative" and pronouns and self._chance(0.4):
            if self._chance(0.5):
                name = self.rng.choice(lex.NAMES)
                return NounPhrase(name, name, plural=False)
            return NounPhrase(*self.rng.choice(lex.PRONOUNS))
        noun = self._noun(nouns, compound=size >= 3 and self._chance(0.25))
        plural = self._chance(0.35)
        number = plural and size >= 3 and self._chance(0.35)
        determiner_en, determiner_de, ending = self._determiner(noun, case, plural, number)
        adjectives = self.rng.sample(lex.ADJECTIVES, k=min(self.rng.randint(0, 2), max(0, size - 2)))
        en = _join(determiner_en, *(en for en, _ in adjectives), noun.en_plural if plural else noun.en)
        de_noun = noun.de_plural if plural else noun.de
        if plural and case == "dative":
            de_noun = dative_plural(de_noun)
        de = _join(determiner_de, *(de + ending for _, de in adjectives), de_noun)
        spare = size - len(en.split())
        if depth and spare >= 4 and self._chance(0.75):
            en_relative, de_relative = self._relative(noun, plural, nouns is lex.PEOPLE, spare)
            en, de = _join(en, en_relative), _join(de, ",", de_relative, ",")
        elif spare >= 3 and self._chance(0.5):
            en_place, de_place = self.place(3)
            en, de = _join(en, en_place), _join(de, de_place)
        return NounPhrase(en, de, plural)

    def _noun(self, nouns: tuple[lex.Noun, ...], compound: bool) -> lex.Noun:
        """A noun, or a compound: two words in English, one in German with the gender of its last part."""
        noun = self.rng.choice(nouns)
        if not compound or nouns is lex.PEOPLE:
            return noun
        en, de = self.rng.choice(lex.COMPOUND_PARTS)
        return lex.Noun(
            f"{en} {noun.en}",
            f"{en} {noun.en_plural}",
            de + noun.de.lower(),
            de + noun.de_plural.lower(),
            noun.gender,
        )

    def _determiner(self, noun: lex.Noun, case: Case, plural: bool, number: bool) -> tuple[str, str, str]:
        """English determiner, German determiner, German adjective ending."""
        form = "plural" if plural else noun.gender
        if number:
            n = self.rng.randint(2, 99) if self._chance(0.85) else self.rng.randint(100, 999)
            return english_number(n), german_number(n), STRONG_PLURAL[case]
        if plural or self._chance(0.6):
            return "the", DEFINITE[case][form], WEAK[case][form]
        return "one" if self._chance(0.1) else "a", INDEFINITE[case][form], MIXED[case][form]

    def _relative(self, noun: lex.Noun, plural: bool, person: bool, size: int) -> Pair:
        """A relative clause: its pronoun agrees with the noun, its verb stands last in German."""
        form = "plural" if plural else noun.gender
        who = "who" if person else "that"
        if person and self._chance(0.6):  # the noun is the subject: "who sees the dog"
            verb = self.verbal(self.rng.choice(lex.TRANSITIVE), plural, size)
            found = self.noun_phrase(size - 2, "accusative", lex.THINGS, depth=0, pronouns=False)
            return (
                _join(who, verb.en, found.en, verb.en_particle),
                _join(RELATIVE["nominative"][form], found.de, verb.at_end),
            )
        subject = self.noun_phrase(2, "nominative", lex.PEOPLE, depth=0)  # "that the woman has bought"
        verb = self.verbal(self.rng.choice(lex.TRANSITIVE), subject.plural, size)
        return (
            _join(who, subject.en, verb.en, verb.en_particle),
            _join(RELATIVE["accusative"][form], subject.de, verb.at_end),
        )

    def verbal(self, verb: lex.Verb, plural: bool, size: int) -> Verbal:
        """The verb in the present, the perfect, the future or with a modal, at times negated."""
        infinitive = verb.prefix + verb.de
        negated = size > 5 and self._chance(0.15)
        no_en, no_de = ("not", "nicht") if negated else ("", "")
        tense = self.rng.random()
        if tense < 0.45:
            finite = verb.de if plural else verb.de_third
            present = _join("do" if plural else "does", "not", verb.en)
            if not negated:
                present = verb.en if plural else verb.en_third
            return Verbal(present, verb.particle, finite, _join(no_de, verb.prefix), _join(no_de, verb.prefix + finite))
        if tense < 0.75:
            has_en, has_de = ("have", "haben") if plural else ("has", "hat")
            return Verbal(
                _join(has_en, no_en, verb.en_participle),
                verb.particle,
                has_de,
                _join(no_de, verb.de_participle),
                _join(no_de, verb.de_participle, has_de),
            )
        # "must not" forbids and would not be "muss nicht", so only the first two modals are negated
        modal_en, third, many = self.rng.choice(lex.MODALS[:2] if negated else lex.MODALS)
        finite = many if plural else third
        return Verbal(
            _join(modal_en, no_en, verb.en),
            verb.particle,
            finite,
            _join(no_de, infinitive),
            _join(no_de, infinitive, finite),
        )


def _finish(words: str) -> str:
    """Write a chain of words and commas as a sentence."""
    text = " ".join(words.split()).replace(" ,", ",")
    while ",," in text:
        text = text.replace(",,", ",")
    text = text.rstrip(",")
    return text[0].upper() + text[1:] + "."


def make_corpus(sizes: dict[str, int], seed: int) -> dict[str, list[Pair]]:
    """Sentence pairs for every split; no English and no German sentence occurs twice, in any split."""
    pairs = Grammar(f"made corpus {seed}").pairs()
    seen_en: set[str] = set()
    seen_de: set[str] = set()
    splits: dict[str, list[Pair]] = {}
    for split in sorted(sizes):  # test, train, valid: a bigger training set leaves the test set as it is
        chosen: list[Pair] = []
        while len(chosen) < sizes[split]:
            en, de = next(pairs)
            if en not in seen_en and de not in seen_de:
                seen_en.add(en)
                seen_de.add(de)
                chosen.append((en, de))
        splits[split] = chosen
    return splits
