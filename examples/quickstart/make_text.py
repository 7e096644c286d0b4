#!/usr/bin/env python3
"""Writes a made English-German-like text, {train,valid,test}.{en,de}, into a folder; the same for the same seed.

Its sentences are those of a small grammar that describes pictures: somebody does something somewhere. Words are as
unequally frequent as in real captions and go together: who plays a guitar does it on a stage rather than on a bridge.
German has genders, cases, compounds, separable verbs and verbs at the end of clauses. What the English of a sentence
does not decide is drawn at random, as translators differ: synonyms, what stands first, words that may be left out. So
no model can reach 100 BLEU, and one that misses a word may still guess it.
"""

import argparse
import random
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, TypeVar

Item = TypeVar("Item")
Pair = tuple[str, str]


class Word(NamedTuple):
    """The forms of an English word and of its German translations; the things and places that a verb goes with."""

    en: tuple[str, ...]
    german: tuple[tuple[str, ...], ...]
    objects: tuple[str, ...]
    places: tuple[str, ...]


def words(table: str) -> tuple[Word, ...]:
    """Reads `english/forms german/forms [synonym/forms] [: objects: places];`, the most frequent words first."""
    entries = ([[form.replace("_", " ") for form in part.split()] for part in entry.split(":")] for entry in table.split(";"))
    return tuple(
        Word(tuple(en.split("/")), tuple(tuple(form.split("/")) for form in german), *map(tuple, others or ((), ())))
        for (en, *german), *others in entries
    )


def nouns(table: str) -> tuple[Word, ...]:
    """Reads the same, with an English plural only where it has no s."""
    return tuple(word._replace(en=(word.en[0], word.en[-1] + "s" * (len(word.en) == 1))) for word in words(table))


PEOPLE = nouns("""
    man/men Mann/Männer/m; woman/women Frau/Frauen/f Dame/Damen/f; boy Junge/Jungen/m; girl Mädchen/Mädchen/n;
    child/children Kind/Kinder/n; person/people Person/Personen/f Mensch/Menschen/m; dog Hund/Hunde/m; worker
    Arbeiter/Arbeiter/m; player Spieler/Spieler/m; kid Kind/Kinder/n; guy Mann/Männer/m Typ/Typen/m; lady/ladies
    Frau/Frauen/f Dame/Damen/f; musician Musiker/Musiker/m; friend Freund/Freunde/m Freundin/Freundinnen/f; dancer
    Tänzerin/Tänzerinnen/f Tänzer/Tänzer/m; student Student/Studenten/m Schüler/Schüler/m; cook Koch/Köche/m; teacher
    Lehrer/Lehrer/m Lehrerin/Lehrerinnen/f; cyclist Radfahrer/Radfahrer/m; doctor Arzt/Ärzte/m Ärztin/Ärztinnen/f;
    clown Clown/Clowns/m; queen Königin/Königinnen/f""")
CLOTHES = nouns("""
    shirt Hemd/Hemden/n Shirt/Shirts/n; jacket Jacke/Jacken/f; hat Hut/Hüte/m Mütze/Mützen/f; dress/dresses
    Kleid/Kleider/n; coat Mantel/Mäntel/m Jacke/Jacken/f; suit Anzug/Anzüge/m; uniform Uniform/Uniformen/f; skirt
    Rock/Röcke/m; cap Mütze/Mützen/f Kappe/Kappen/f; apron Schürze/Schürzen/f; vest Weste/Westen/f; costume
    Kostüm/Kostüme/n""")
THINGS = nouns("""
    ball Ball/Bälle/m; guitar Gitarre/Gitarren/f; bicycle Fahrrad/Fahrräder/n Rad/Räder/n; horse Pferd/Pferde/n;
    camera Kamera/Kameras/f Fotoapparat/Fotoapparate/m; book Buch/Bücher/n; picture Bild/Bilder/n Foto/Fotos/n; bag
    Tasche/Taschen/f Tüte/Tüten/f; toy Spielzeug/Spielzeuge/n; box/boxes Kiste/Kisten/f Schachtel/Schachteln/f; car
    Auto/Autos/n Wagen/Wagen/m; boat Boot/Boote/n; cake Kuchen/Kuchen/m Torte/Torten/f; bottle Flasche/Flaschen/f;
    newspaper Zeitung/Zeitungen/f; letter Brief/Briefe/m; piano Klavier/Klaviere/n; stone Stein/Steine/m
    Fels/Felsen/m; fish/fish Fisch/Fische/m; flower Blume/Blumen/f; basket Korb/Körbe/m; rope Seil/Seile/n; stick
    Stock/Stöcke/m Ast/Äste/m; cart Wagen/Wagen/m Karren/Karren/m; chair Stuhl/Stühle/m; table Tisch/Tische/m; window
    Fenster/Fenster/n; wall Wand/Wände/f Mauer/Mauern/f; door Tür/Türen/f; sandwich/sandwiches Brot/Brote/n; apple
    Apfel/Äpfel/m; umbrella Schirm/Schirme/m; phone Telefon/Telefone/n Handy/Handys/n; flag Fahne/Fahnen/f
    Flagge/Flaggen/f; sign Schild/Schilder/n; lamp Lampe/Lampen/f; card Karte/Karten/f; kite Drachen/Drachen/m; sled
    Schlitten/Schlitten/m; ladder Leiter/Leitern/f; net Netz/Netze/n; sheep/sheep Schaf/Schafe/n; map Karte/Karten/f
    Plan/Pläne/m; tent Zelt/Zelte/n; plate Teller/Teller/m; bird Vogel/Vögel/m""")
PLACES = {
    ("on", "auf"): nouns("""
        street Straße/Straßen/f; beach/beaches Strand/Strände/m; stage Bühne/Bühnen/f; bench/benches Bank/Bänke/f;
        mountain Berg/Berge/m; bridge Brücke/Brücken/f; hill Hügel/Hügel/m Berg/Berge/m"""),
    ("in", "in"): nouns("""
        park Park/Parks/m; field Feld/Felder/n Wiese/Wiesen/f; building Gebäude/Gebäude/n Haus/Häuser/n; house
        Haus/Häuser/n; room Zimmer/Zimmer/n Raum/Räume/m; kitchen Küche/Küchen/f; shop Geschäft/Geschäfte/n Laden/Läden/m;
        store Geschäft/Geschäfte/n Laden/Läden/m; forest Wald/Wälder/m; garden Garten/Gärten/m; church/churches
        Kirche/Kirchen/f; school Schule/Schulen/f; harbor Hafen/Häfen/m; stadium Stadion/Stadien/n; restaurant
        Restaurant/Restaurants/n"""),
    ("at", "an"): nouns("""
        river Fluss/Flüsse/m; market Markt/Märkte/m; tree Baum/Bäume/m; lake See/Seen/m; fence Zaun/Zäune/m; fountain
        Brunnen/Brunnen/m; station Bahnhof/Bahnhöfe/m; tower Turm/Türme/m"""),
}
VERBS = words("""
    play/plays/playing spielen/spielt: guitar ball card piano: stage park street field beach; hold/holds/holding
    halten/hält tragen/trägt: camera bag flag sign umbrella: street beach building tree; ride/rides/riding
    fahren/fährt: bicycle car sled: street park hill mountain bridge; carry/carries/carrying tragen/trägt
    schleppen/schleppt: bag box basket ladder flower: street market station bridge; look_at/looks_at/looking_at
    schauen/schaut/an sehen/sieht/an: picture map phone car bird: street shop lake harbor; throw/throws/throwing
    werfen/wirft: ball stone stick net rope: field beach river stadium park; eat/eats/eating essen/isst: cake sandwich
    apple fish: kitchen restaurant bench beach market; read/reads/reading lesen/liest: book newspaper letter map sign:
    bench room station tree garden; clean/cleans/cleaning putzen/putzt reinigen/reinigt: window car table plate lamp:
    house kitchen restaurant shop; push/pushes/pushing schieben/schiebt: cart bicycle car boat sled: street market
    hill station bridge; build/builds/building bauen/baut errichten/errichtet: wall tent table boat tower: garden
    house forest beach; sell/sells/selling verkaufen/verkauft: flower fish apple toy newspaper: market street shop
    church station; pick_up/picks_up/picking_up heben/hebt/auf: ball stone box flower bottle: garden park field beach
    tree; buy/buys/buying kaufen/kauft kaufen/kauft/ein: toy flower cake book bag: store shop market station;
    paint/paints/painting malen/malt streichen/streicht/an: picture wall door chair fence: house room garden school
    church; watch/watches/watching beobachten/beobachtet schauen/schaut/an: bird horse boat sheep kite: lake river
    hill fence; ride/rides/riding reiten/reitet: horse: forest beach field mountain; repair/repairs/repairing
    reparieren/repariert: bicycle car boat lamp fence: street house harbor garden""")
COMPOUNDS = words("""
    toy Spielzeug; city Stadt; garden Garten; school Schul; wooden Holz; kitchen Küchen; winter Winter; sports Sport;
    metal Metall; plastic Plastik; summer Sommer; church Kirchen; police Polizei; village Dorf""")
COLOURS = words("""
    blue blau; red rot; white weiß; black schwarz; green grün; yellow gelb; brown braun; gray grau; bright hell""")
QUALITIES = words("""
    large groß riesig; small klein; old alt; big groß; wet nass; colorful bunt farbig; long lang; new neu; empty leer;
    beautiful schön hübsch; strange seltsam; heavy schwer; broken kaputt defekt""")
AGES = words("""
    young jung; little klein; old alt; small klein; tall groß; blond blond; happy fröhlich glücklich; tired müd;
    smiling lächelnd""")
NUMBERS = words("two zwei; three drei; several mehrere einige; some einige; four vier")
MODALS = words("can kann/können; wants_to/want_to will/wollen; must muss/müssen")
ADVERBS = words("today heute; carefully vorsichtig; now jetzt nun; slowly langsam; again wieder nochmals")
LINKS = words("while während; because weil da; although obwohl")
PREPOSITIONS = words("in_front_of vor; near bei nahe; next_to neben; behind hinter")
FILLERS = ("gerade", "hier", "dabei", "wohl")
"""German words that stand for nothing in English."""
AGREEMENT = {
    (case, form): entry.split("/")
    for case, row in {
        "nominative": "der/e/ein/er die/e/eine/e das/e/ein/es die/en//e",
        "accusative": "den/en/einen/en die/e/eine/e das/e/ein/es die/en//e",
        "dative": "dem/en/einem/en der/en/einer/en dem/en/einem/en den/en//en",
    }.items()
    for form, entry in zip(("m", "f", "n", "plural"), row.split(), strict=True)
}
"""The definite article and the ending of an adjective after it, then the indefinite article and its ending."""
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
        en, de, gender = noun.en[form], german[form], "plural" if form else german[2]
        if form and case == "dative" and de[-1] not in "ns":
            de += "n"
        if self.chance(0.1):
            en_part, part = self.translated(COMPOUNDS)
            en, de = f"{en_part} {en}", part + de.lower()
        the, weak, article, ending = AGREEMENT[case, gender]
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

        Returns English, and of the German the subject, the finite verb, what stands in the middle, what ends a main
        clause (an infinitive, or the prefix of the finite verb), and all parts of the verb as they end another clause.
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
    splits: dict[str, list[Pair]] = {split: [] for split in sorted(sizes)}
    for split, pairs in splits.items():  # test, train, valid: a bigger training set leaves the test set as it is
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
            there = {path.name: path for path in (folder.iterdir() if folder.is_dir() else ())}
            if not all(file.name in there and there[file.name].read_bytes() == file.read_bytes() for file in made.iterdir()):
                raise OSError(f"{folder} is there and holds something else: name a new folder") from None


def natural(text: str) -> int:
    """Returns a whole number from 1 on."""
    if not re.fullmatch("[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}\n")


def main() -> None:
    """Reads the command line and writes the text."""
    parser = Parser(description="Writes a made English-German-like text.", allow_abbrev=False)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where {train,valid,test}.{en,de} go")
    parser.add_argument("--seed", type=natural, default=1, metavar="N", help="another seed, another text")
    sizes = {"train": 20000, "valid": 300, "test": 500}
    for split, size in sizes.items():
        parser.add_argument(f"--{split}", type=natural, default=size, metavar="N", help=f"sentences (default: {size})")
    args = parser.parse_args()
    try:
        write(args.folder, make(args.seed, {split: getattr(args, split) for split in sizes}))
    except OSError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
