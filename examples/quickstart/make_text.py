#!/usr/bin/env python3
"""Writes a synthetic English-German text, {train,valid,test}.{en,de}, into a folder; the same for the same seed.

A small grammar describes pictures: somebody does something somewhere. Word frequencies are as uneven as in real
captions, and words go together: a guitar is played on a stage rather than on a hill. German has genders, cases,
compounds, separable verbs and verbs at the end of clauses. What the English does not decide is drawn at random, as
translators differ: synonyms, word order, words that may be left out. So no model can reach 100 BLEU.
"""

import argparse
import filecmp
import os
import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

Item = TypeVar("Item")
Pair = tuple[str, str]


class Word(NamedTuple):
    """The forms of an English word and of its German translations; the things and places that a verb goes with."""

    en: tuple[str, ...]
    german: list[tuple[str, ...]]
    objects: tuple[str, ...] = ()
    places: tuple[str, ...] = ()


def forms(text: str) -> tuple[str, ...]:
    """Reads `word/form/form`, where + stands for the word."""
    word, *others = text.replace("_", " ").split("/")
    return word, *(other.replace("+", word) for other in others)


def words(table: str) -> tuple[Word, ...]:
    """Reads `english/forms german/forms [synonym/forms] [: objects: places];`, the most frequent words first."""
    entries = ([list(map(forms, part.split())) for part in entry.split(":")] for entry in table.split(";"))
    return tuple(Word(en, german, *(tuple(w for (w,) in o) for o in others)) for (en, *german), *others in entries)


PEOPLE = words("""
    man/men Mann/Männer/m; woman/women Frau/+en/f Dame/+n/f; boy/+s Junge/+n/m; girl/+s Mädchen/+/n; child/+ren
    Kind/+er/n; person/people Person/+en/f Mensch/+en/m; dog/+s Hund/+e/m; worker/+s Arbeiter/+/m; player/+s
    Spieler/+/m; kid/+s Kind/+er/n; guy/+s Mann/Männer/m Typ/+en/m; lady/ladies Frau/+en/f Dame/+n/f; musician/+s
    Musiker/+/m; friend/+s Freund/+e/m Freundin/+nen/f; dancer/+s Tänzerin/+nen/f Tänzer/+/m; student/+s Student/+en/m
    Schüler/+/m; teacher/+s Lehrer/+/m Lehrerin/+nen/f; cyclist/+s Radfahrer/+/m""")
CLOTHES = words("""
    shirt/+s Hemd/+en/n Shirt/+s/n; jacket/+s Jacke/+n/f; hat/+s Hut/Hüte/m Mütze/+n/f; dress/+es Kleid/+er/n; coat/+s
    Mantel/Mäntel/m Jacke/+n/f; skirt/+s Rock/Röcke/m; cap/+s Mütze/+n/f Kappe/+n/f; apron/+s Schürze/+n/f""")
THINGS = words("""
    ball/+s Ball/Bälle/m; guitar/+s Gitarre/+n/f; bicycle/+s Fahrrad/Fahrräder/n Rad/Räder/n; horse/+s Pferd/+e/n;
    camera/+s Kamera/+s/f Fotoapparat/+e/m; book/+s Buch/Bücher/n; picture/+s Bild/+er/n Foto/+s/n; bag/+s Tasche/+n/f
    Tüte/+n/f; toy/+s Spielzeug/+e/n; box/+es Kiste/+n/f Schachtel/+n/f; car/+s Auto/+s/n Wagen/+/m; boat/+s Boot/+e/n;
    cake/+s Kuchen/+/m Torte/+n/f; bottle/+s Flasche/+n/f; newspaper/+s Zeitung/+en/f; letter/+s Brief/+e/m; piano/+s
    Klavier/+e/n; stone/+s Stein/+e/m Fels/+en/m; fish/+ Fisch/+e/m; flower/+s Blume/+n/f; basket/+s Korb/Körbe/m;
    rope/+s Seil/+e/n; stick/+s Stock/Stöcke/m Ast/Äste/m; cart/+s Wagen/+/m Karren/+/m; chair/+s Stuhl/Stühle/m;
    table/+s Tisch/+e/m; window/+s Fenster/+/n; wall/+s Wand/Wände/f Mauer/+n/f; door/+s Tür/+en/f; sandwich/+es
    Brot/+e/n; apple/+s Apfel/Äpfel/m; umbrella/+s Schirm/+e/m; phone/+s Telefon/+e/n Handy/+s/n; flag/+s Fahne/+n/f
    Flagge/+n/f; sign/+s Schild/+er/n; kite/+s Drachen/+/m; sled/+s Schlitten/+/m; ladder/+s Leiter/+n/f; map/+s
    Karte/+n/f Plan/Pläne/m; bird/+s Vogel/Vögel/m""")
PLACES = {
    ("on", "auf"): words("""
        street/+s Straße/+n/f; beach/+es Strand/Strände/m; stage/+s Bühne/+n/f; bench/+es Bank/Bänke/f; mountain/+s
        Berg/+e/m; bridge/+s Brücke/+n/f; hill/+s Hügel/+/m Berg/+e/m"""),
    ("in", "in"): words("""
        park/+s Park/+s/m; field/+s Feld/+er/n Wiese/+n/f; building/+s Gebäude/+/n Haus/Häuser/n; house/+s
        Haus/Häuser/n; room/+s Zimmer/+/n Raum/Räume/m; kitchen/+s Küche/+n/f; shop/+s Geschäft/+e/n Laden/Läden/m;
        store/+s Geschäft/+e/n Laden/Läden/m; forest/+s Wald/Wälder/m; garden/+s Garten/Gärten/m; church/+es
        Kirche/+n/f; school/+s Schule/+n/f"""),
    ("at", "an"): words("""
        river/+s Fluss/Flüsse/m; market/+s Markt/Märkte/m; tree/+s Baum/Bäume/m; lake/+s See/+n/m; fence/+s
        Zaun/Zäune/m; station/+s Bahnhof/Bahnhöfe/m"""),
}
VERBS = words("""
    play/+s/+ing spielen/spielt: guitar ball piano: stage park street field beach; hold/+s/+ing halten/hält
    tragen/trägt: camera bag flag sign umbrella: street beach building tree; ride/+s/riding fahren/fährt: bicycle car
    sled: street park hill mountain bridge; carry/carries/+ing tragen/trägt schleppen/schleppt: bag box basket ladder
    flower: street market station bridge; look_at/looks_at/looking_at schauen/schaut/an sehen/sieht/an: picture map
    phone car bird: street shop lake; throw/+s/+ing werfen/wirft: ball stone stick rope: field beach river park;
    eat/+s/+ing essen/isst: cake sandwich apple fish: kitchen bench beach market; read/+s/+ing lesen/liest: book
    newspaper letter map sign: bench room station tree garden; clean/+s/+ing putzen/putzt reinigen/reinigt: window car
    table: house kitchen shop; push/+es/+ing schieben/schiebt: cart bicycle car boat sled: street market hill station
    bridge; sell/+s/+ing verkaufen/verkauft: flower fish apple toy newspaper: market street shop church station;
    pick_up/picks_up/picking_up heben/hebt/auf: ball stone box flower bottle: garden park field beach tree; buy/+s/+ing
    kaufen/kauft kaufen/kauft/ein: toy flower cake book bag: store shop market station; paint/+s/+ing malen/malt
    streichen/streicht/an: picture wall door chair fence: house room garden school church; watch/+es/+ing
    beobachten/beobachtet schauen/schaut/an: bird horse boat kite: lake river hill fence; ride/+s/riding reiten/reitet:
    horse: forest beach field mountain""")
COMPOUNDS = words("toy Spielzeug; city Stadt; garden Garten; school Schul; wooden Holz; kitchen Küchen; church Kirchen")
COLOURS = words("blue blau; red rot; white weiß; black schwarz; green grün; yellow gelb; brown braun; gray grau")
QUALITIES = words("""
    large groß riesig; small klein; old alt; big groß; wet nass; colorful bunt farbig; long lang; new neu; beautiful
    schön hübsch; heavy schwer; broken kaputt defekt""")
AGES = words("young jung; little klein; old alt; small klein; tall groß; blond blond; happy fröhlich glücklich")
NUMBERS = words("two zwei; three drei; several mehrere einige; some einige; four vier")
MODALS = words("can kann/können; wants_to/want_to will/wollen; must muss/müssen")
ADVERBS = words("today heute; carefully vorsichtig; now jetzt nun; slowly langsam; again wieder nochmals")
LINKS = words("while während; because weil da; although obwohl")
PREPOSITIONS = words("in_front_of vor; near bei nahe; next_to neben; behind hinter")
FILLERS = ("gerade", "hier", "dabei", "wohl")  # they stand for nothing in English
AGREEMENT = {  # by gender, then in the plural: "the", the ending of an adjective after it, "a", the ending after that
    "nominative": "der/e/ein/er die/e/eine/e das/e/ein/es die/en//e",
    "accusative": "den/en/einen/en die/e/eine/e das/e/ein/es die/en//e",
    "dative": "dem/en/einem/en der/en/einer/en dem/en/einem/en den/en//en",
}
PREPOSITION = {noun.en[0]: own for own, places in PLACES.items() for noun in places}
NOUNS = {noun.en[0]: noun for group in (THINGS, *PLACES.values()) for noun in group}
SKEW, SYNONYM = 1.2, 0.7  # exponents of Zipf's law, for words and for German synonyms


class Grammar(random.Random):
    """Draws sentence pairs; the same seed draws the same pairs."""

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def skewed(self, items: Sequence[Item], exponent: float = SKEW) -> Item:
        """Draws an item, the first ones the most often."""
        return self.choices(items, [rank**-exponent for rank in range(1, len(items) + 1)])[0]

    def translated(self, known: Sequence[Word], form: int = 0) -> Pair:
        """Draws a word and one of its translations."""
        word = self.skewed(known)
        german = self.skewed(word.german, SYNONYM)
        return word.en[min(form, len(word.en) - 1)], german[min(form, len(german) - 1)]

    def noun_phrase(self, noun: Word, case: str, qualities: Sequence[Word], definite: float) -> tuple[str, str, bool]:
        """Draws what stands with a noun; returns English and German, and whether it is plural."""
        form, german = int(self.chance(0.15)), self.skewed(noun.german, SYNONYM)
        en, de, column = noun.en[form], german[form], 3 if form else "mfn".index(german[2])
        if form and case == "dative" and de[-1] not in "ns":
            de += "n"
        if self.chance(0.1):
            en_part, part = self.translated(COMPOUNDS)
            en, de = f"{en_part} {en}", part + de.lower()
        the, weak, article, ending = AGREEMENT[case].split()[column].split("/")
        en_article = "" if form else "a"
        if self.chance(definite):
            en_article, article, ending = "the", the, weak
        elif form and self.chance(0.7):
            en_article, article = self.translated(NUMBERS)
            article += "n" if case == "dative" and article.endswith("e") else ""
        if self.chance(0.35):
            en_adjective, adjective = self.translated(qualities)
            en, de = f"{en_adjective} {en}", f"{adjective}{ending} {de}"
        return f"{en_article} {en}", f"{article} {de}", bool(form)

    def clause(self) -> tuple[str, str, str, list[str], str, str]:
        """Draws who does what, at times in which clothes, where and how.

        Returns English, and of the German subject, finite verb and middle, what ends a main clause (an infinitive, or
        the prefix of the finite verb), and all parts of the verb, as they end a subordinate clause.
        """
        en_subject, subject, plural = self.noun_phrase(self.skewed(PEOPLE), "nominative", AGES, 0.1)
        if self.chance(0.25):
            en_clothes, clothes, _ = self.noun_phrase(self.skewed(CLOTHES), "dative", COLOURS, 0)
            en_subject, subject = f"{en_subject} in {en_clothes}", f"{subject} {self.choice(('in', 'mit'))} {clothes}"
        verb = self.skewed(VERBS, 0.7)
        infinitive, third, prefix, *_ = (*self.skewed(verb.german, SYNONYM), "")
        en_verb = verb.en[1 - plural] if self.chance(0.3) else f"{'are' if plural else 'is'} {verb.en[2]}"
        finite, closing, last = infinitive if plural else third, prefix, prefix + (infinitive if plural else third)
        if self.chance(0.1):
            en_modal, finite = self.translated(MODALS, int(plural))
            en_verb, closing, last = f"{en_modal} {verb.en[0]}", prefix + infinitive, f"{prefix}{infinitive} {finite}"
        thing = NOUNS[self.skewed(verb.objects)]
        en_object, de_object, _ = self.noun_phrase(thing, "accusative", QUALITIES + COLOURS, 0.15)
        en, middle = f"{en_subject} {en_verb} {en_object}", [de_object]
        if self.chance(0.5):
            noun = NOUNS[self.skewed(verb.places)]
            en_place, place, _ = self.noun_phrase(noun, "dative", QUALITIES, 0.4)
            others = self.translated(PREPOSITIONS)
            en_preposition, preposition = others if self.chance(0.2) else PREPOSITION[noun.en[0]]
            en = f"{en} {en_preposition} {en_place}"
            middle.insert(self.randrange(2), f"{preposition} {place}")  # before the object or after it
        if self.chance(0.15):
            en_adverb, adverb = self.translated(ADVERBS)
            en, middle = f"{en} {en_adverb}", [adverb, *middle]
        if self.chance(0.2):
            middle.insert(0, self.skewed(FILLERS))
        return en, subject, finite, middle, closing, last

    def sentence(self) -> Pair:
        """Draws a sentence of one or two clauses; in German something else than the subject may stand first."""
        en, subject, finite, middle, closing, _ = self.clause()
        order = [middle[-1], finite, subject, *middle[:-1]] if self.chance(0.15) else [subject, finite, *middle]
        de = " ".join([*order, closing])
        if self.chance(0.1):
            (en_link, link), (en_second, subject, _, middle, _, last) = self.translated(LINKS), self.clause()
            en = f"{en} {en_link} {en_second}"
            de = f"{de.strip()}, {link} {' '.join([subject, *middle, last])}"
        sides = (" ".join(side.split()) for side in (re.sub(r"\ba (?=[aeiou])", "an ", en), de))
        en, de = (side[0].upper() + side[1:] + "." for side in sides)
        return en, de


def make(seed: int, sizes: dict[str, int]) -> dict[str, list[Pair]]:
    """Returns sentence pairs for every split; no English and no German sentence occurs twice, in any split."""
    grammar, seen = Grammar(f"made text {seed}"), set[str]()
    splits: dict[str, list[Pair]] = {split: [] for split in reversed(sizes)}
    for split, pairs in splits.items():  # training last: a bigger one leaves the others as they are
        while len(pairs) < sizes[split]:
            pair = grammar.sentence()
            if seen.isdisjoint(pair):
                seen.update(pair)
                pairs.append(pair)
    return splits


def write(folder: Path, splits: dict[str, list[Pair]]) -> None:
    """Writes a new folder beside and renames it, so that a text is complete where there is one."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as beside:
        made = Path(beside, "text")
        made.mkdir()
        for split, pairs in splits.items():
            for lang, lines in zip(("en", "de"), zip(*pairs, strict=True), strict=True):
                (made / f"{split}.{lang}").write_text("\n".join(lines) + "\n", encoding="utf-8")
        try:
            made.rename(folder)  # replaces an empty folder, and no other
        except OSError:
            if filecmp.cmpfiles(made, folder, os.listdir(made), shallow=False)[1:] != ([], []):
                raise OSError(f"{folder} holds something else: name a new folder") from None


def main() -> None:
    """Reads the command line and writes the text."""
    parser = argparse.ArgumentParser(description="Writes a made English-German-like text.", allow_abbrev=False)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where {train,valid,test}.{en,de} go")
    numbers = {"seed": "1", "train": "30000", "valid": "300", "test": "500"}
    for name, default in numbers.items():
        parser.add_argument(f"--{name}", default=default, metavar="N", help=f"default: {default}")
    args = vars(parser.parse_args())
    for name in numbers:
        if not re.fullmatch("[1-9][0-9]{0,8}", args[name]):
            parser.exit(2, f"error: --{name} {args[name]} is not a whole number from 1 to 999999999\n")
    try:
        seed, *sizes = (int(args[name]) for name in numbers)
        write(args["folder"], make(seed, dict(zip(("train", "valid", "test"), sizes, strict=True))))
    except OSError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
