"""The report as one HTML page that needs nothing beside it: pictures, styles and script are all inside."""

import base64
import hashlib
import re
import string
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from statistics import fmean
from typing import Any
from urllib.parse import unquote

import jinja2
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import OptionsDict
from markupsafe import Markup, escape
from sacrebleu.metrics import CHRF

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.cli.files import write_text

HERE = Path(__file__).parent
PUNCTUATION = re.escape(string.punctuation + "„“”‚‘’«»‹›…–—¿¡。，、！？：；（）「」『』")
# a word, with the punctuation inside it (don't, 1,000), or one sign of punctuation
WORD = re.compile(rf"[^\s{PUNCTUATION}]+(?:[{PUNCTUATION}]+[^\s{PUNCTUATION}]+)*|[{PUNCTUATION}]")


@dataclass(frozen=True)
class Examples:
    """A test set and what each model made of it: line n of every list belongs to sentence n.

    Raises:
        UserError: if the lists differ in length.
    """

    sources: list[str]
    references: list[str]
    systems: dict[str, list[str]]  # translations by model; the first model is the baseline

    def __post_init__(self) -> None:
        for name, sentences in {"the reference": self.references, **self.systems}.items():
            if len(sentences) != len(self.sources):
                raise UserError(
                    f"{name} has {len(sentences)} sentences for {len(self.sources)} test sentences, so they cannot be "
                    "shown side by side: translate the test set again."
                )


def write_page(
    title: str,
    markdown: str,
    pictures: Path,
    examples: Examples | None,
    path: Path,
    *,
    source_lang: str = "",
    target_lang: str = "",
) -> None:
    """Write the report and, where there is more than a baseline, the translations side by side.

    The page asks for nothing from outside. Markdown is CommonMark with tables; HTML in it is shown as text, and so
    is a picture that is no PNG file of `pictures`. An empty language is one that is not known.

    Raises:
        UserError: if a picture of the report is missing.
    """
    script = _asset("page.js")
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html.jinja").render(
        title=title,
        report=Markup(render_markdown(markdown, pictures)),
        comparison=_comparison(examples) if examples and len(examples.systems) > 1 else None,
        source_lang=source_lang,
        target_lang=target_lang,
        style=Markup(_asset("page.css")),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    write_text(path, page)


def render_markdown(markdown: str, pictures: Path) -> str:
    """The Markdown as HTML, with every table in a box of its own and the PNG files of `pictures` inside."""
    parser = MarkdownIt("commonmark", {"html": False}).enable("table")
    parser.add_render_rule("image", _image)
    parser.add_render_rule("table_open", lambda *_: '<div class="table">\n<table>\n')
    parser.add_render_rule("table_close", lambda *_: "</table>\n</div>\n")
    return parser.render(markdown, {"pictures": pictures})


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    """A picture as a data URI, or what it shows in words where it is not ours."""
    token = tokens[index]
    name = unquote(str(token.attrs["src"]))
    if Path(name).name != name or not name.endswith(".png"):
        return str(escape(token.content))
    try:
        data = (env["pictures"] / name).read_bytes()
    except OSError as error:
        raise UserError(
            f"{env['pictures'] / name} belongs to the report but cannot be read ({error.strerror}): "
            "run the same command again."
        ) from None
    token.attrs["src"] = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    return renderer.image(tokens, index, options, env)


def most_different(examples: Examples, limit: int = 200) -> list[tuple[int, float]]:
    """The sentences on which the models differ most from the baseline: (position from 0, difference in 0..100).

    The difference is 100 less the sentence's chrF (Popović 2015, as sacreBLEU has it) of a model's translation
    against the baseline's, averaged over the models. The greatest comes first, ties are in the order of the test set.
    Translations that are all the baseline's own come last, even behind those that differ in white space alone.
    """
    baseline, *others = examples.systems.values()
    chrf = CHRF()

    def difference(position: int, other: list[str]) -> float:
        if other[position] == baseline[position]:
            return 0.0  # chrF has no score for an empty pair, and rounds
        return max(0.0, 100 - chrf.sentence_score(other[position], [baseline[position]]).score)

    def same(position: int) -> bool:
        return all(other[position] == baseline[position] for other in others)

    differences = {i: fmean(difference(i, other) for other in others) for i in range(len(baseline))}
    return sorted(differences.items(), key=lambda item: (-item[1], same(item[0]), item[0]))[:limit]


def marked_words(baseline: str, translation: str) -> list[tuple[str, bool]]:
    """The translation in pieces, each with whether the baseline lacks it in that place; joined they are the whole."""
    words = list(WORD.finditer(translation))
    matcher = SequenceMatcher(None, WORD.findall(baseline), [word.group() for word in words], autojunk=False)
    pieces = []
    done = 0
    for kind, _, _, first, end in matcher.get_opcodes():
        if first < end:
            start, stop = words[first].start(), words[end - 1].end()
            pieces += [(translation[done:start], False), (translation[start:stop], kind != "equal")]
            done = stop
    pieces.append((translation[done:], False))
    return [(text, new) for text, new in pieces if text]


def _comparison(examples: Examples) -> dict[str, Any]:
    """What the template shows of the translations."""
    baseline, *models = examples.systems
    return {
        "baseline": baseline,
        "models": models,
        "sentences": len(examples.sources),
        "rows": [
            {
                "number": position + 1,
                "difference": difference,
                "source": examples.sources[position],
                "reference": examples.references[position],
                "baseline": (base := examples.systems[baseline][position]),
                "models": {name: marked_words(base, examples.systems[name][position]) for name in models},
            }
            for position, difference in most_different(examples)
        ],
    }


def _asset(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
