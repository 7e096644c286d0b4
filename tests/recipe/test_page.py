"""The report as a page: whole in one file, safe whatever the texts hold, and sortable in a real browser."""

import base64
import json
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from statistics import fmean

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.recipe import page
from linformer_fairseq.recipe.page import Examples, marked_words, most_different, write_page

ROOT = Path(__file__).parents[2]
PICTURE = base64.b64decode(  # one pixel
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
REPORT = """# Transformer and Linformer, en-de

Corpus: `data <b>`, & more.

| Model          |       Parameters |           BLEU |   Share |  Change |
|:---------------|-----------------:|---------------:|--------:|--------:|
| zebra          |        1,767,936 |   35.21 ± 0.90 |      9% |    −0.5 |
| Linformer k=16 |              986 | 4.1 [3.9, 4.4] |    100% |      +3 |
| Äpfel          |                – |   35.21 ± 0.10 |   20.5% |    -1.2 |
| Linformer k=8  |           12,000 |  5.68 ± 999.00 |      –  |       0 |
| apple          |              –   |            inf |   <30%  |  1.5e-3 |

| Date       | Note |
|------------|-----:|
| 2024-05-01 | b    |
| 2024-04-30 | a    |

![Perplexity](curve%20one.png)
"""
HOSTILE = [
    "<script>window.hacked = 1</script>",
    "</span></td></table><img src=x onerror='window.hacked = 1'>",
    "[a](javascript:window.hacked=1) ![b](http://example.invalid/b.png)",
    '{{ title }} {% raw %} &lt;b&gt; " onclick="window.hacked = 1',
]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
WORDS = st.lists(st.sampled_from(["the", "man's", "dog", "runs", ",", ".", "„so“", "1,000", "-"]), max_size=12)


class Cells(HTMLParser):
    """The texts of the translations' cells, row by row."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside = False
        self.feed(path.read_bytes().decode())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "tr":
            self.rows.append([])
        if tag == "td":
            self.inside = True
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "td"

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data


def written(tmp_path: Path, markdown: str = "", examples: Examples | None = None, **languages: str) -> Path:
    path = tmp_path / "report.html"
    write_page("A title", markdown, tmp_path, examples, path, **languages)
    return path


def some_examples() -> Examples:
    """Four sentences; the models agree on the second, and differ most on the third."""
    return Examples(
        ["One dog.", "Two dogs.", "Ten dogs.", "No dog."],
        ["Ein Hund.", "Zwei Hunde.", "Zehn Hunde.", "Kein Hund."],
        {
            "Transformer": ["Ein Hund läuft.", "Zwei Hunde.", "Zehn Hunde.", "Kein Hund."],
            "Linformer k=8": ["Ein Hund geht.", "Zwei Hunde.", "Vier Katzen!", "Kein Hund."],
            "Linformer k=16": ["Ein Hund läuft.", "Zwei Hunde.", "Fisch", "Ein Hund."],
        },
    )


def test_the_page_is_whole_in_one_file(tmp_path):
    (tmp_path / "curve one.png").write_bytes(PICTURE)
    path = written(tmp_path, REPORT, some_examples())
    tags = Cells(path).tags
    assert [attributes["src"] for tag, attributes in tags if tag == "img"] == [
        "data:image/png;base64," + base64.b64encode(PICTURE).decode()
    ]
    assert next(attributes for tag, attributes in tags if tag == "img")["alt"] == "Perplexity"
    assert not [attributes for tag, attributes in tags if tag == "script" and attributes]
    assert [attributes for tag, attributes in tags if tag == "link"] == [{"rel": "icon", "href": "data:,"}]
    assert not [1 for _, attributes in tags if (attributes.get("href") or "").startswith(("http", "//"))]
    text = path.read_text(encoding="utf-8")
    assert "<title>A title</title>" in text
    assert "@import" not in text
    assert "url(" not in text
    assert not list(tmp_path.glob("*.part"))


def test_tables_keep_the_alignment_of_the_markdown(tmp_path):
    (tmp_path / "curve one.png").write_bytes(PICTURE)
    cells = [attributes for tag, attributes in Cells(written(tmp_path, REPORT)).tags if tag == "td"]
    assert [attributes.get("style", "") for attributes in cells[:3]] == [
        "text-align:left",
        "text-align:right",
        "text-align:right",
    ]


def test_markdown_brings_in_no_html_no_script_and_nothing_from_elsewhere(tmp_path):
    (tmp_path.parent / "outside.png").write_bytes(PICTURE)
    path = written(
        tmp_path,
        "<script>window.hacked = 1</script>\n\n<b onclick='x()'>bold</b>\n\n[a](javascript:x())\n\n"
        "![far away](http://example.invalid/a.png) ![near](../outside.png) ![a < b](//example.invalid/c.png)",
    )
    tags = Cells(path).tags
    assert [tag for tag, _ in tags if tag in ("img", "b", "a")] == []
    assert sum(tag == "script" for tag, _ in tags) == 1
    text = path.read_text(encoding="utf-8")
    assert "&lt;script&gt;window.hacked = 1&lt;/script&gt;" in text
    assert "[a](javascript:x())" in text
    assert "far away near a &lt; b" in text


def test_a_missing_picture_is_refused_and_the_page_before_stays(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("before")
    with pytest.raises(UserError, match=r"gone\.png .*run the same command again"):
        written(tmp_path, "![x](gone.png)")
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_title_names_and_languages_are_text(tmp_path):
    path = tmp_path / "report.html"
    names = ["</title><script>1</script>", 'B" onclick="x()']
    examples = Examples(["a"], ["b"], {name: [f"{i}"] for i, name in enumerate(names)})
    write_page(names[0], "", tmp_path, examples, path, source_lang='e"n', target_lang="de")
    tags = Cells(path).tags
    assert sum(tag == "script" for tag, _ in tags) == 1
    assert not [1 for _, attributes in tags if "onclick" in attributes]
    assert [attributes["lang"] for tag, attributes in tags if tag == "span"] == ['e"n', "de", "de", "de"]
    assert [attributes["data-label"] for tag, attributes in tags if tag == "td"][-2:] == names


def test_a_page_takes_the_place_of_the_one_before_in_one_move(tmp_path):
    path = written(tmp_path, "before")
    with path.open(encoding="utf-8") as reader:
        written(tmp_path, "after")
        assert "<p>before</p>" in reader.read()
    assert "<p>after</p>" in path.read_text(encoding="utf-8")


@given(TEXT, TEXT, TEXT, TEXT)
def test_every_text_is_shown_as_it_is(tmp_path_factory, source, reference, base, other):
    path = written(tmp_path_factory.mktemp("page"), "", Examples([source], [reference], {"A": [base], "B": [other]}))
    assert Cells(path).rows[-1][2:] == [source, reference, base, other]


def test_translations_are_shown_with_their_numbers_most_different_first(tmp_path):
    path = written(tmp_path, "", some_examples())
    rows = [row for row in Cells(path).rows if row]
    assert [row[0] for row in rows] == ["3", "1", "4", "2"]
    assert rows[0][2:] == ["Ten dogs.", "Zehn Hunde.", "Zehn Hunde.", "Vier Katzen!", "Fisch"]
    assert rows[-1][1] == "0.0"
    text = path.read_text(encoding="utf-8")
    assert "4 of 4 test sentences" in text
    assert "the baseline, Transformer:" in text
    assert "averaged over the 2 other models" in text
    assert "<mark>Vier Katzen!</mark>" in text
    assert "Ein Hund <mark>geht</mark>." in text


def test_it_says_how_many_of_how_many_are_shown(tmp_path):
    many = [str(i) for i in range(1234)]
    path = written(tmp_path, "", Examples(many, many, {"A": many, "B": many[::-1]}))
    assert "200 of 1,234 test sentences" in path.read_text(encoding="utf-8")
    assert len([row for row in Cells(path).rows if row]) == 200


@pytest.mark.parametrize("systems", [{}, {"Transformer": ["Ein Hund."]}])
def test_a_baseline_alone_has_nothing_beside_it(tmp_path, systems):
    path = written(tmp_path, "# Report", Examples(["One dog."], ["Ein Hund."], systems))
    assert path.read_text(encoding="utf-8") == written(tmp_path, "# Report").read_text(encoding="utf-8")
    assert "Translations side by side" not in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("references", "systems", "named"),
    [(["a"], {"A": ["a", "b"]}, "the reference"), (["a", "b"], {"A": ["a", "b"], "B": ["a"]}, "B")],
)
def test_lists_of_different_length_are_refused(references, systems, named):
    with pytest.raises(UserError, match=f"^{named} has 1 sentences for 2 test sentences"):
        Examples(["a", "b"], references, systems)


def test_difference_is_that_of_chrf_averaged_over_the_models():
    examples = some_examples()
    baseline, *others = examples.systems.values()
    expected = {
        i: fmean(100 - sacrebleu.sentence_chrf(other[i], [baseline[i]]).score for other in others) for i in range(4)
    }
    assert most_different(examples) == [(i, pytest.approx(expected[i], abs=1e-6)) for i in (2, 0, 3, 1)]
    assert expected[2] > expected[0] > expected[3] > expected[1]


def test_ties_stay_in_order_and_what_is_identical_comes_last():
    base = ["", "a b", "same", "left", "same", "left", ""]
    other = ["", "ab", "same", "right", "same", "right", "new"]  # chrF does not see the white space of the second
    order = most_different(Examples(base, base, {"A": base, "B": other}))
    assert [position for position, _ in order] == [6, 3, 5, 1, 0, 2, 4]
    assert dict(order)[6] == 100
    assert [difference for _, difference in order][-4:] == [0, 0, 0, 0]
    assert most_different(Examples(base, base, {"A": base, "B": other}), limit=3) == order[:3]


@pytest.mark.parametrize(
    ("baseline", "translation", "expected"),
    [
        ("Ein Hund läuft.", "Ein Hund läuft.", "Ein Hund läuft."),
        ("Ein Zaun.", "Ein Zaun auf dem Rasen.", "Ein Zaun [auf dem Rasen]."),
        ("Ein Mann, der isst", "Eine Frau, der isst", "[Eine Frau], der isst"),
        ("It don't cost 1,000", "It doesn't cost 1,001!", "It [doesn't] cost [1,001!]"),
        ("", "Neu hier", "[Neu hier]"),
        ("Alt", "", ""),
        ("a b", " a  c b ", " a  [c] b "),
    ],
)
def test_words_that_the_baseline_lacks_are_marked(baseline, translation, expected):
    pieces = marked_words(baseline, translation)
    assert "".join(f"[{text}]" if new else text for text, new in pieces) == expected


@given(TEXT, TEXT)
def test_marking_loses_nothing(baseline, translation):
    assert "".join(text for text, _ in marked_words(baseline, translation)) == translation
    assert not any(new for _, new in marked_words(translation, translation))


@given(WORDS, WORDS)
def test_what_is_not_marked_is_in_the_baseline_in_that_order(baseline, translation):
    left = iter(page.WORD.findall(" ".join(baseline)))
    kept = [text for text, new in marked_words(" ".join(baseline), " ".join(translation)) if not new]
    assert all(word in left for word in page.WORD.findall(" ".join(kept)))


def test_the_page_is_installed_with_all_that_it_is_made_of(tmp_path):
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    installed = {file.name for file in (tmp_path / "linformer_fairseq" / "recipe").glob("page.*")}
    assert installed == {file.name for file in Path(page.__file__).parent.glob("page.*")}
    assert len(installed) == 4


# In a browser ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and driver):
        pytest.skip("no chromium and chromedriver here")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage"),
        f"--user-data-dir={tmp_path_factory.mktemp('chromium')}",
    ):
        options.add_argument(flag)
    chromium = webdriver.Chrome(options=options, service=Service(executable_path=driver))
    yield chromium
    chromium.quit()


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> str:
    """A report with its table of numbers, and translations that try to be more than text."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "curve one.png").write_bytes(PICTURE)
    examples = some_examples()
    longest = "vergnüg" + 60 * "ungschaft"
    systems = {name: [*lines, *HOSTILE, longest] for name, lines in examples.systems.items()}
    systems["Linformer k=8"][4:8] = reversed(HOSTILE)
    extended = Examples([*examples.sources, *HOSTILE, "x"], [*examples.references, *HOSTILE, "x"], systems)
    markdown = f"{REPORT}\n\n{HOSTILE[0]}\n\n{HOSTILE[1]}\n\n{HOSTILE[2]}"
    return written(folder, markdown, extended, source_lang="en", target_lang="de").as_uri()


@pytest.fixture
def opened(chromium, address):
    chromium.get(address)
    return chromium


def header(opened, table: int, column: int):
    return opened.find_elements("tag name", "table")[table].find_elements("tag name", "th")[column]


def press(opened, table: int, column: int, key: str | None = None) -> str | None:
    """Press a header; the direction in which the table is sorted then."""
    button = header(opened, table, column).find_element("tag name", "button")
    if key:
        button.send_keys(key)
    else:
        button.click()
    return header(opened, table, column).get_attribute("aria-sort")


def column(opened, table: int, column: int) -> list[str]:
    script = "return [...document.querySelectorAll('table')[arguments[0]].tBodies[0].rows]"
    return opened.execute_script(script + ".map(row => row.cells[arguments[1]].textContent.trim())", table, column)


def test_the_page_asks_for_nothing_and_has_no_errors(opened, address):
    messages = [json.loads(entry["message"])["message"] for entry in opened.get_log("performance")]
    requests = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    ours = {r["request"]["url"] for r in requests if r["documentURL"] == address}
    assert address in ours
    assert all(url.startswith("data:image/png;base64,") for url in ours - {address})
    assert opened.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert opened.get_log("browser") == []
    assert opened.execute_script("return document.images[0].naturalWidth") == 1


def test_texts_stay_texts(opened):
    assert opened.execute_script("return window.hacked") is None
    assert len(opened.find_elements("tag name", "img")) == 1
    shown = opened.find_element("tag name", "main").text
    assert all(shown.count(text) >= 5 for text in HOSTILE)  # as source, reference and each model's translation


@pytest.mark.parametrize(
    ("number", "rising", "falling"),
    [
        (1, ["986", "12,000", "1,767,936", "–", "–"], ["1,767,936", "12,000", "986", "–", "–"]),
        (
            2,
            ["4.1 [3.9, 4.4]", "5.68 ± 999.00", "35.21 ± 0.90", "35.21 ± 0.10", "inf"],
            ["inf", "35.21 ± 0.90", "35.21 ± 0.10", "5.68 ± 999.00", "4.1 [3.9, 4.4]"],
        ),
        (3, ["9%", "20.5%", "<30%", "100%", "–"], ["100%", "<30%", "20.5%", "9%", "–"]),
        (4, ["-1.2", "−0.5", "0", "1.5e-3", "+3"], ["+3", "1.5e-3", "0", "−0.5", "-1.2"]),
    ],
)
def test_numbers_are_sorted_by_value_with_nothing_last(opened, number, rising, falling):
    assert press(opened, 0, number) == "ascending"
    assert column(opened, 0, number) == rising
    assert press(opened, 0, number) == "descending"
    assert column(opened, 0, number) == falling
    assert press(opened, 0, number) == "ascending"
    assert column(opened, 0, number) == rising


def test_texts_are_sorted_as_readers_do(opened):
    rising = ["Äpfel", "apple", "Linformer k=8", "Linformer k=16", "zebra"]
    assert press(opened, 0, 0) == "ascending"
    assert column(opened, 0, 0) == rising
    assert press(opened, 0, 0) == "descending"
    assert column(opened, 0, 0) == rising[::-1]
    press(opened, 1, 0)  # dates begin with a number, but are none
    assert column(opened, 1, 0) == ["2024-04-30", "2024-05-01"]


def test_rows_that_are_equal_stay_in_their_order(opened):
    press(opened, 0, 0)
    press(opened, 0, 0)
    press(opened, 0, 2)
    assert column(opened, 0, 0)[2:4] == ["zebra", "Äpfel"]
    press(opened, 0, 0)
    press(opened, 0, 2)
    assert column(opened, 0, 0)[2:4] == ["Äpfel", "zebra"]
    press(opened, 0, 2)
    assert column(opened, 0, 0)[1:3] == ["Äpfel", "zebra"]


def test_rows_move_as_wholes_and_other_tables_stay(opened):
    others = column(opened, 1, 0), column(opened, 2, 0)
    press(opened, 0, 1)
    assert column(opened, 0, 0) == ["Linformer k=16", "Linformer k=8", "zebra", "Äpfel", "apple"]
    assert (column(opened, 1, 0), column(opened, 2, 0)) == others


@pytest.mark.parametrize("key", [Keys.ENTER, Keys.SPACE])
@pytest.mark.parametrize("table", [0, 2])
def test_the_keyboard_sorts_too_and_keeps_its_place(opened, table, key):
    numbers = 1 if table == 0 else 0
    by_mouse = press(opened, table, numbers), column(opened, table, numbers)
    opened.refresh()
    assert (press(opened, table, numbers, key), column(opened, table, numbers)) == by_mouse
    button = header(opened, table, numbers).find_element("tag name", "button")
    assert opened.switch_to.active_element == button
    assert press(opened, table, numbers, key) == "descending"


def test_one_arrow_shows_what_a_table_is_sorted_by(opened):
    def arrows(table: int) -> list[str]:
        script = """return [...document.querySelectorAll('table')[arguments[0]].tHead.rows[0].cells].map(header =>
            ['::before', '::after'].map(at => getComputedStyle(header.firstElementChild, at).content).join(''))"""
        return ["".join(c for c in content if c in "▲▼") for content in opened.execute_script(script, table)]

    assert arrows(0) == ["", "", "", "", ""]
    press(opened, 0, 0)
    press(opened, 0, 1)
    assert arrows(0) == ["", "▲", "", "", ""]
    press(opened, 0, 1)
    assert arrows(0) == ["", "▼", "", "", ""]
    assert arrows(2) == ["", "▼", "", "", "", "", ""]


def test_translations_are_sorted_by_number_and_by_text(opened):
    differences = [float(text) for text in column(opened, 2, 1)]
    assert differences == sorted(differences, reverse=True)
    assert differences[0] > 0
    assert press(opened, 2, 1) == "ascending"  # they came descending
    assert [float(text) for text in column(opened, 2, 1)] == sorted(differences)
    assert press(opened, 2, 0) == "ascending"
    assert column(opened, 2, 0) == [str(i) for i in range(1, 10)]
    assert press(opened, 2, 2) == "ascending"
    assert [text for text in column(opened, 2, 2) if text.endswith(".")] == [
        "No dog.",
        "One dog.",
        "Ten dogs.",
        "Two dogs.",
    ]
    assert press(opened, 2, 2) == "descending"
    assert column(opened, 2, 2)[:3] == ["x", "Two dogs.", "Ten dogs."]


@pytest.mark.parametrize("width", [1280, 390])
def test_only_wide_tables_scroll_sideways(opened, width):
    screen = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    try:
        sizes = "const box = document.querySelector('.table'); return [document.documentElement.scrollWidth,"
        page_width, box_width, table_width = opened.execute_script(f"{sizes} box.clientWidth, box.scrollWidth]")
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert page_width <= width
    assert (table_width > box_width) == (width == 390)


def test_the_page_is_dark_where_the_reader_wants_it(opened):
    def brightness(media: str, scheme: str) -> int:
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        colour = opened.execute_script("return getComputedStyle(document.body).backgroundColor")
        return sum(int(part) for part in colour.removeprefix("rgb(").removesuffix(")").split(","))

    assert brightness("screen", "light") == 3 * 255
    assert brightness("screen", "dark") < 3 * 64
    assert brightness("print", "dark") == 3 * 255
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
