"""The report as one HTML page that holds its pictures, styles and script itself."""

import base64
import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean

import jinja2
from markdown_it import MarkdownIt
from markupsafe import Markup
from sacrebleu.metrics import CHRF

from linformer_fairseq.cli.files import write_text

SHOWN = 200
"""Sentences whose translations are on the page."""
# a word with the punctuation inside it (don't, 1,000), a single sign of punctuation, or white space
TOKEN = re.compile(r"\w+(?:[^\w\s]+\w+)*|[^\w\s]|\s+")


@dataclass(frozen=True)
class Examples:
    """A test set and what each model made of it: line n of every list belongs to sentence n."""

    source_lang: str
    target_lang: str
    sources: list[str]
    references: list[str]
    systems: dict[str, list[str]]
    """Translations by model; the first model is the baseline."""


def write_page(path: Path, title: str, markdown: str, pictures: list[Path], examples: Examples) -> None:
    """Writes the report and, where there is more than a baseline, the translations side by side.

    Args:
        markdown: CommonMark with tables; HTML in it is shown as text.
        pictures: PNG files that `markdown` shows by their names.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html.jinja").render(
        title=title,
        report=Markup(_render(markdown, pictures)),
        examples=examples,
        sentences=most_different(list(examples.systems.values())) if len(examples.systems) > 1 else [],
        marked_words=marked_words,
    )
    write_text(path, page)


def _render(markdown: str, pictures: list[Path]) -> str:
    """Returns the Markdown as HTML, every table in a box that scrolls, the pictures as data."""
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    html = html.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    for picture in pictures:
        data = base64.b64encode(picture.read_bytes()).decode()
        html = html.replace(f'src="{picture.name}"', f'src="data:image/png;base64,{data}"')
    return html


def most_different(systems: list[list[str]], limit: int = SHOWN) -> list[tuple[int, float]]:
    """Returns the sentences on which the models differ most from the first: (position from 0, difference in 0..100).

    The difference is 100 minus the sentence's chrF (Popović 2015, as sacreBLEU has it) of a model's translation
    against the baseline's, averaged over the models; ties stay in the order of the test set.
    """
    chrf = CHRF()

    def difference(baseline: str, other: str) -> float:
        # chrF has no score for two empty sentences, and rounds
        return 0.0 if other == baseline else max(0.0, 100 - chrf.sentence_score(other, [baseline]).score)

    differences = [
        fmean(difference(baseline, other) for other in others) for baseline, *others in zip(*systems, strict=True)
    ]
    return sorted(enumerate(differences), key=lambda item: -item[1])[:limit]


def marked_words(baseline: str, translation: str) -> list[tuple[str, bool]]:
    """Returns the translation in pieces, each with whether the baseline lacks it there; joined they are the whole."""
    before, now = TOKEN.findall(baseline), TOKEN.findall(translation)
    matcher = SequenceMatcher(str.isspace, before, now, autojunk=False)
    return [("".join(now[first:end]), kind != "equal") for kind, _, _, first, end in matcher.get_opcodes()]
