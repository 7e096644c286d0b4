"""The report as a page: whole in one file, safe whatever the texts hold, and sortable in a real browser."""

import base64
import json
import shutil
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

from linformer_fairseq.recipe.page import Examples, marked_words, most_different, write_page

PICTURE = base64.b64decode(  # one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
REPORT = """# Report

Corpus: `data <b>`, & more.

| Model          |       Parameters |          BLEU |  Change |
|:---------------|-----------------:|--------------:|--------:|
| zebra          |        1,767,936 |         35.21 |    -0.5 |
| Linformer k=16 |              986 |           4.1 |   +3.00 |
| Äpfel          |                – |         35.21 |   -1.25 |
| Linformer k=8  |           12,000 |          5.68 |       – |
| apple          |              –   |           inf |   +0.02 |

![Perplexity](curve.png)
"""
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</span></td></table><img src=x onerror='window.hacked = 1'>",
    '[a](javascript:window.hacked=1) {{ title }} {% raw %} &lt;b&gt; " onclick="window.hacked = 1',
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


class Cells(HTMLParser):
    """The texts of the translations' cells, row by row, and all tags."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside = False
        self.feed(path.read_bytes().decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.inside = True
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = self.inside and tag != "td"

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.rows[-1][-1] += data


def examples(sources: list[str], references: list[str], **systems: list[str]) -> Examples:
    return Examples("en", "de", sources, references, systems)


SOME = examples(
    ["One dog.", "Two dogs.", "Ten dogs.", "No dog."],
    ["Ein Hund.", "Zwei Hunde.", "Zehn Hunde.", "Kein Hund."],
    A=["Ein Hund läuft.", "Zwei Hunde.", "Zehn Hunde.", "Kein Hund."],
    B=["Ein Hund geht.", "Zwei Hunde.", "Vier Katzen!", "Kein Hund."],
    C=["Ein Hund läuft.", "Zwei Hunde.", "Fisch", "Ein Hund."],
)


def written(folder: Path, markdown: str = "", shown: Examples = SOME, title: str = "A title") -> Path:
    (folder / "curve.png").write_bytes(PICTURE)
    write_page(folder / "report.html", title, markdown, [folder / "curve.png"], shown)
    return folder / "report.html"


def test_the_page_is_whole_in_one_file(tmp_path: Path) -> None:
    tags = Cells(written(tmp_path, REPORT)).tags
    picture = {"src": "data:image/png;base64," + base64.b64encode(PICTURE).decode(), "alt": "Perplexity"}
    assert [attributes for tag, attributes in tags if tag == "img"] == [picture]
    assert [attributes for tag, attributes in tags if tag == "script"] == [{}]
    assert not list(tmp_path.glob("*.part"))


def test_text_is_never_markup(tmp_path: Path) -> None:
    """Neither in the report nor in the title, the languages, or the names of models."""
    for text in HOSTILE:
        shown = Examples(text, text, ["a"], ["b"], {text: ["c"], f"{text}.": ["d"]})
        tags = Cells(written(tmp_path, f"{text}\n\n`{text}`\n\n| {text} |\n|---|\n| a |\n", shown, title=text)).tags
        assert sum(tag == "script" for tag, _ in tags) == 1
        assert not [1 for tag, attributes in tags if tag in ("a", "b", "img") or "onclick" in attributes]
        labels = [attributes["data-label"] for _, attributes in tags if "data-label" in attributes]
        assert labels[-2:] == [text, f"{text}."]


@given(TEXT, TEXT, TEXT, TEXT)
def test_every_text_is_shown_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, source: str, reference: str, base: str, other: str
) -> None:
    path = written(tmp_path_factory.mktemp("page"), "", examples([source], [reference], A=[base], B=[other]))
    assert Cells(path).rows[-1][2:] == [source, reference, base, other]


def test_translations_are_shown_most_different_first(tmp_path: Path) -> None:
    path = written(tmp_path)
    rows = [row for row in Cells(path).rows if row]
    assert [row[0] for row in rows] == ["3", "1", "4", "2"]
    assert rows[0][2:] == ["Ten dogs.", "Zehn Hunde.", "Zehn Hunde.", "Vier Katzen!", "Fisch"]
    assert rows[-1][1] == "0.0"
    text = path.read_text(encoding="utf-8")
    assert "4 of 4 test sentences" in text
    assert "Ein Hund <mark>geht</mark>." in text
    many = [str(i) for i in range(1234)]
    path = written(tmp_path, "", examples(many, many, A=many, B=many[::-1]))
    assert "200 of 1,234 test sentences" in path.read_text(encoding="utf-8")
    assert len([row for row in Cells(path).rows if row]) == 200


def test_a_baseline_alone_has_nothing_beside_it(tmp_path: Path) -> None:
    text = written(tmp_path, "# Report", examples(["One dog."], ["Ein Hund."], A=["Ein Hund."])).read_text()
    assert "Translations side by side" not in text
    assert "<h1>Report</h1>" in text


def test_difference_is_that_of_chrf_averaged_over_the_models() -> None:
    base, *others = SOME.systems.values()
    scores = [[sacrebleu.sentence_chrf(other[i], [base[i]]).score for other in others] for i in range(4)]
    expected = [(i, pytest.approx(100 - sum(scores[i]) / 2, abs=1e-6)) for i in (2, 0, 3, 1)]
    assert most_different([base, *others]) == expected
    assert most_different([base, *others], limit=2) == expected[:2]
    assert most_different([["", "a", ""], ["", "a", "b"]]) == [(2, 100), (0, 0), (1, 0)]


@pytest.mark.parametrize(
    ("baseline", "translation", "expected"),
    [
        ("Ein Zaun.", "Ein Zaun auf dem Rasen.", "Ein Zaun[ auf dem Rasen]."),
        ("Ein Mann, der isst", "Eine Frau, der isst", "[Eine Frau], der isst"),
        ("It don't cost 1,000", "It doesn't cost 1,001!", "It [doesn't] cost [1,001!]"),
        ("", "„Neu“ hier", "[„Neu“ hier]"),
    ],
)
def test_words_that_the_baseline_lacks_are_marked(baseline: str, translation: str, expected: str) -> None:
    pieces = marked_words(baseline, translation)
    assert "".join(f"[{text}]" if new and text else text for text, new in pieces) == expected


@given(TEXT, TEXT)
def test_marking_loses_nothing_and_marks_no_word_of_the_baseline_itself(baseline: str, translation: str) -> None:
    assert "".join(text for text, _ in marked_words(baseline, translation)) == translation
    assert not any(new for _, new in marked_words(translation, translation))


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("no chromium and chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", f"user-data-dir={tmp_path}"):
        options.add_argument(f"--{flag}")
    browser = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    yield browser
    browser.quit()


def test_a_browser_sorts_tables_and_shows_texts_as_texts(
    browser: webdriver.Chrome, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """From a file, with no request; by mouse and by keyboard."""
    systems = {name: [*lines, *HOSTILE] for name, lines in SOME.systems.items()}
    systems["B"][4:] = reversed(HOSTILE)
    shown = Examples("en", "de", [*SOME.sources, *HOSTILE], [*SOME.references, *HOSTILE], systems)
    address = written(tmp_path_factory.mktemp("report"), REPORT + HOSTILE[2], shown).as_uri()
    browser.get(address)

    def sort(table: int, column: int, key: str = "") -> tuple[str | None, list[str]]:
        """Press a header; the direction of sorting, and the column's cells."""
        header = browser.find_elements("tag name", "table")[table].find_elements("tag name", "th")[column]
        button = header.find_element("tag name", "button")
        button.send_keys(key) if key else button.click()
        return header.get_attribute("aria-sort"), cells(table, column)

    def cells(table: int, column: int) -> list[str]:
        rows = "return [...document.querySelectorAll('table')[arguments[0]].tBodies[0].rows]"
        return browser.execute_script(rows + ".map(row => row.cells[arguments[1]].textContent)", table, column)

    assert sort(0, 1) == ("ascending", ["986", "12,000", "1,767,936", "–", "–"])
    assert cells(0, 0) == ["Linformer k=16", "Linformer k=8", "zebra", "Äpfel", "apple"]  # rows move as wholes
    assert sort(0, 1) == ("descending", ["1,767,936", "12,000", "986", "–", "–"])
    assert sort(0, 2, Keys.ENTER) == ("ascending", ["4.1", "5.68", "35.21", "35.21", "inf"])
    assert sort(0, 3, Keys.SPACE) == ("ascending", ["-1.25", "-0.5", "+0.02", "+3.00", "–"])
    assert sort(0, 0)[1] == ["Äpfel", "apple", "Linformer k=8", "Linformer k=16", "zebra"]
    assert len(browser.find_elements("css selector", "table:first-of-type th[aria-sort]")) == 2  # one in each table

    differences = [float(text) for text in cells(1, 1)]
    assert differences == sorted(differences, reverse=True)
    assert sort(1, 1)[0] == "ascending"  # they came descending
    assert sort(1, 0)[1] == [str(number) for number in range(1, 8)]
    first = browser.find_elements("css selector", ".examples tbody tr:first-child td span")
    texts = ["One dog.", "Ein Hund.", "Ein Hund läuft.", "Ein Hund geht.", "Ein Hund läuft."]
    assert [text.text for text in first] == texts
    assert first[1].rect["y"] < first[2].rect["y"]

    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return [...document.images].map(image => image.naturalWidth)") == [1]
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    requests = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    urls = {request["request"]["url"] for request in requests if request["documentURL"] == address}
    assert {url for url in urls if not url.startswith("data:")} == {address}
    assert browser.get_log("browser") == []
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
    box_width, table_width = browser.execute_script(
        "const box = document.querySelector('.table'); return [box.clientWidth, box.scrollWidth]"
    )
    assert box_width < table_width  # the table scrolls in its box
