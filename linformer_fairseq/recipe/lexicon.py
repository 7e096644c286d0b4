"""The words of the made corpus: a small English lexicon with its German-like counterpart."""

from typing import Literal, NamedTuple

Gender = Literal["m", "f", "n"]


class Noun(NamedTuple):
    """A countable noun; German plurals are given in the nominative."""

    en: str
    en_plural: str
    de: str
    de_plural: str
    gender: Gender


class Verb(NamedTuple):
    """A verb; `prefix` is the separable prefix of the German one ("hebt das Buch auf")."""

    en: str
    en_third: str
    en_participle: str
    de: str
    de_third: str
    de_participle: str
    prefix: str = ""
    particle: str = ""


PEOPLE = (
    Noun("man", "men", "Mann", "Männer", "m"),
    Noun("woman", "women", "Frau", "Frauen", "f"),
    Noun("child", "children", "Kind", "Kinder", "n"),
    Noun("teacher", "teachers", "Lehrer", "Lehrer", "m"),
    Noun("doctor", "doctors", "Ärztin", "Ärztinnen", "f"),
    Noun("girl", "girls", "Mädchen", "Mädchen", "n"),
    Noun("baker", "bakers", "Bäcker", "Bäcker", "m"),
    Noun("queen", "queens", "Königin", "Königinnen", "f"),
    Noun("uncle", "uncles", "Onkel", "Onkel", "m"),
    Noun("sister", "sisters", "Schwester", "Schwestern", "f"),
    Noun("dog", "dogs", "Hund", "Hunde", "m"),
    Noun("cat", "cats", "Katze", "Katzen", "f"),
    Noun("horse", "horses", "Pferd", "Pferde", "n"),
    Noun("bird", "birds", "Vogel", "Vögel", "m"),
)

THINGS = (
    Noun("book", "books", "Buch", "Bücher", "n"),
    Noun("letter", "letters", "Brief", "Briefe", "m"),
    Noun("lamp", "lamps", "Lampe", "Lampen", "f"),
    Noun("table", "tables", "Tisch", "Tische", "m"),
    Noun("clock", "clocks", "Uhr", "Uhren", "f"),
    Noun("picture", "pictures", "Bild", "Bilder", "n"),
    Noun("coat", "coats", "Mantel", "Mäntel", "m"),
    Noun("flower", "flowers", "Blume", "Blumen", "f"),
    Noun("cake", "cakes", "Kuchen", "Kuchen", "m"),
    Noun("apple", "apples", "Apfel", "Äpfel", "m"),
    Noun("bottle", "bottles", "Flasche", "Flaschen", "f"),
    Noun("boat", "boats", "Boot", "Boote", "n"),
    Noun("key", "keys", "Schlüssel", "Schlüssel", "m"),
    Noun("door", "doors", "Tür", "Türen", "f"),
)

PLACES = (
    Noun("house", "houses", "Haus", "Häuser", "n"),
    Noun("bridge", "bridges", "Brücke", "Brücken", "f"),
    Noun("tree", "trees", "Baum", "Bäume", "m"),
    Noun("window", "windows", "Fenster", "Fenster", "n"),
    Noun("street", "streets", "Straße", "Straßen", "f"),
    Noun("market", "markets", "Markt", "Märkte", "m"),
    Noun("village", "villages", "Dorf", "Dörfer", "n"),
    Noun("church", "churches", "Kirche", "Kirchen", "f"),
)

# First parts of compounds: two words in English, one in German.
COMPOUND_PARTS = (
    ("kitchen", "Küchen"),
    ("garden", "Garten"),
    ("school", "Schul"),
    ("winter", "Winter"),
    ("city", "Stadt"),
    ("silver", "Silber"),
    ("family", "Familien"),
    ("toy", "Spielzeug"),
)

ADJECTIVES = (
    ("old", "alt"),
    ("young", "jung"),
    ("small", "klein"),
    ("big", "groß"),
    ("red", "rot"),
    ("green", "grün"),
    ("new", "neu"),
    ("beautiful", "schön"),
    ("strange", "seltsam"),
    ("quiet", "ruhig"),
)

NAMES = ("Anna", "Peter", "Maria", "Paul", "Lena", "Max")

# (English, German, plural)
PRONOUNS = (("he", "er", False), ("she", "sie", False), ("we", "wir", True), ("they", "sie", True))

TRANSITIVE = (
    Verb("see", "sees", "seen", "sehen", "sieht", "gesehen"),
    Verb("find", "finds", "found", "finden", "findet", "gefunden"),
    Verb("carry", "carries", "carried", "tragen", "trägt", "getragen"),
    Verb("buy", "buys", "bought", "kaufen", "kauft", "gekauft"),
    Verb("sell", "sells", "sold", "verkaufen", "verkauft", "verkauft"),
    Verb("paint", "paints", "painted", "malen", "malt", "gemalt"),
    Verb("hear", "hears", "heard", "hören", "hört", "gehört"),
    Verb("forget", "forgets", "forgotten", "vergessen", "vergisst", "vergessen"),
    Verb("love", "loves", "loved", "lieben", "liebt", "geliebt"),
    Verb("pick", "picks", "picked", "heben", "hebt", "aufgehoben", "auf", "up"),
    Verb("watch", "watches", "watched", "schauen", "schaut", "angeschaut", "an"),
    Verb("return", "returns", "returned", "bringen", "bringt", "zurückgebracht", "zurück"),
)

DITRANSITIVE = (
    Verb("give", "gives", "given", "geben", "gibt", "gegeben"),
    Verb("show", "shows", "shown", "zeigen", "zeigt", "gezeigt"),
    Verb("send", "sends", "sent", "schicken", "schickt", "geschickt"),
)

INTRANSITIVE = (
    Verb("sleep", "sleeps", "slept", "schlafen", "schläft", "geschlafen"),
    Verb("work", "works", "worked", "arbeiten", "arbeitet", "gearbeitet"),
    Verb("laugh", "laughs", "laughed", "lachen", "lacht", "gelacht"),
    Verb("wait", "waits", "waited", "warten", "wartet", "gewartet"),
    Verb("dance", "dances", "danced", "tanzen", "tanzt", "getanzt"),
    Verb("sing", "sings", "sung", "singen", "singt", "gesungen"),
)

# Verbs that take a whole clause: (English third person, plural, German third person, plural)
REPORTING = (
    ("says", "say", "sagt", "sagen"),
    ("knows", "know", "weiß", "wissen"),
    ("believes", "believe", "glaubt", "glauben"),
)

# (English, German third person singular, German plural)
MODALS = (("will", "wird", "werden"), ("can", "kann", "können"), ("must", "muss", "müssen"))

ADVERBS = (
    ("today", "heute"),
    ("now", "jetzt"),
    ("here", "hier"),
    ("often", "oft"),
    ("every day", "jeden Tag"),
    ("in the evening", "am Abend"),
)

# Prepositions with the dative: of place, and of company.
PLACE_PREPOSITIONS = (("behind", "hinter"), ("under", "unter"), ("next to", "neben"), ("in front of", "vor"))

COORDINATORS = (("and", "und"), ("but", "aber"))
SUBORDINATORS = (("because", "weil"), ("although", "obwohl"), ("while", "während"), ("if", "falls"))

ONES_EN = (
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
TENS_EN = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
ONES_DE = (
    "null",
    "eins",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
)
TENS_DE = ("", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig")
