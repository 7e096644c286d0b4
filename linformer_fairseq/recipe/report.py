"""All models that an output folder holds: what results.json and the report say of them."""

from pathlib import Path

from linformer_fairseq.cli.files import read_json, write_json, write_text

from . import length_timing, page, plots, texts
from .prepare import corpus_facts
from .report_text import report_text, report_title
from .rows import Row, finished_rows, hypotheses
from .settings import Settings

PERPLEXITY_PLOT = "perplexity.png"
COMPARISON_PLOT = "comparison.png"
LENGTHS_PLOT = "lengths.png"


def write_report(settings: Settings, out: Path) -> None:
    """Writes results.json, the plots, report.md and report.html anew."""
    rows = finished_rows(settings, out)
    facts = corpus_facts(out)
    timed = read_json(out / length_timing.FILE_NAME) if (out / length_timing.FILE_NAME).exists() else None
    names = dict.fromkeys(name for row in rows for name in row.facts)
    models = [{name: row[name] for name in names} for row in rows]
    results = {"settings": settings.as_json(), "corpus": facts, "models": models, "lengths": timed}
    write_json(out / "results.json", results)
    pictures = {
        "Validation perplexity against updates": PERPLEXITY_PLOT,
        "Quality and speed against k": COMPARISON_PLOT,
    }
    plots.perplexity(rows, out / PERPLEXITY_PLOT)
    plots.comparison(rows, out / COMPARISON_PLOT)
    if timed:
        plots.lengths(timed["rows"], out / LENGTHS_PLOT)
        pictures["Time against sentence length"] = LENGTHS_PLOT
    text = report_text(settings, rows, facts, timed, pictures)
    write_text(out / "report.md", text)
    page.write_page(
        out / "report.html",
        report_title(settings),
        text,
        [out / picture for picture in pictures.values()],
        _examples(settings, rows, out),
    )


def _examples(settings: Settings, rows: list[Row], out: Path) -> page.Examples:
    source, target = settings.text.source_lang, settings.text.target_lang
    return page.Examples(
        source_lang=source,
        target_lang=target,
        sources=texts.read_lines(out / "raw" / f"test.{source}"),
        references=texts.read_lines(out / "raw" / f"test.{target}"),
        systems={row.model.name: hypotheses(row.model, out) for row in rows},
    )
