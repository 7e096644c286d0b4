"""The report of an output folder whose models were finished by an older recipe, which measured less."""

from pathlib import Path
from typing import Any

import pytest

from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.recipe import sources, subwords, texts
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.report import write_report
from linformer_fairseq.recipe.report_text import summary
from linformer_fairseq.recipe.settings import Model
from tests.recipe.test_report_text import table

SCORES = {
    "bleu": 20.5,
    "signature": "S",
    "chrf": 40.5,
    "chrf_signature": "C",
    "compound_bleu": 30.5,
    "compound_signature": "B",
    "perplexity": 5.5,
    "seconds": 1.5,
    "sentences_per_second": 2.5,
    "tokens_per_second": 3.5,
    "checkpoints": ["checkpoint_best.pt"],
    "precision": "fp32",
    "threads": 1,
    "machine": "that one",
}
TRAINING = {
    "jobs": 1,
    "processes": 1,
    "precision": "fp32",
    "threads": 2,
    "machine": "this one",
    "command": ["fairseq-train"],
}
MODELS = (Model(), Model(8, "cross", "conv"))
LINES = ["Ein Hund läuft.", "Zwei Hunde laufen sehr weit weg."]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with two finished models."""
    for folder in ("raw", "bpe"):
        (tmp_path / folder).mkdir()
    for lang in ("en", "de"):
        texts.write_lines(tmp_path / "raw" / f"test.{lang}", LINES)
    write_json(tmp_path / "raw" / sources.FACTS, {"dropped": {}})
    counted = {split: {"pairs": 2, "source_subwords": 9, "source_max": 6} for split in texts.SPLITS}
    write_json(tmp_path / "bpe" / subwords.FACTS, {"dropped": {}, **counted})
    for model in MODELS:
        folder = tmp_path / "models" / model.slug
        (folder / "test").mkdir(parents=True)
        (folder / "train.log").write_text('| valid | {"valid_num_updates": "10", "valid_ppl": "6.5"}\n')
        identity = {"k": model.k, "attention": model.attention, "projection": model.projection}
        write_json(folder / "train.json", {**identity, **TRAINING})
        write_json(folder / "test" / "scores.json", SCORES)
        texts.write_lines(folder / "test" / "hypotheses.txt", LINES)
    return tmp_path


def reported(out: Path) -> tuple[str, str, list[dict[str, Any]]]:
    """The report as text, as a page, and its models in results.json."""
    write_report(parse(["--out", str(out)]).settings, out)
    text, page = ((out / f"report.{ending}").read_text(encoding="utf-8") for ending in ("md", "html"))
    return text, page, read_json(out / "results.json")["models"]


def cells(text: str, column: str) -> list[str]:
    """The cells of a column of the table of quality, by its header."""
    header, *rows = table(text, "## Model performance")
    return [row[header.index(column)] for row in rows]


def test_a_fact_that_an_older_recipe_did_not_store_is_a_dash(out: Path) -> None:
    scores = out / "models" / MODELS[0].slug / "test" / "scores.json"
    assert cells(reported(out)[0], "chrF") == ["40.50", "40.50"]
    write_json(scores, {name: value for name, value in SCORES.items() if name != "chrf"})
    text, page, (transformer, linformer) = reported(out)
    assert cells(text, "chrF") == ["–", "40.50"]
    assert cells(text, "BLEU") == ["20.50", "20.50"]
    assert page.count(">–</td>") == text.count(" – |") > 0
    assert (transformer["chrf"], linformer["chrf"]) == (None, 40.5)


def test_no_fact_is_needed_for_a_report(out: Path) -> None:
    """Not one of those that commands store besides what identifies the model."""
    for model in MODELS:
        folder = out / "models" / model.slug
        write_json(folder / "test" / "scores.json", {})
        identity = read_json(folder / "train.json")
        write_json(folder / "train.json", {name: identity[name] for name in ("k", "attention", "projection")})
    text, page, models = reported(out)
    assert table(text, "## Inference time")[1] == ["Transformer", "–", "–", "–", "–"]
    assert table(text, "## Machines")[1] == ["Transformer", "–", "–", "–", "–"]
    assert page.count(">–</td>") == text.count(" – |")
    assert [model["model"] for model in models] == [model.name for model in MODELS]
    assert summary(MODELS[0], out).startswith("  Transformer: perplexity – (validation)\n    sacreBLEU – (–)\n")
    for plot in ("perplexity.png", "comparison.png"):
        assert (out / plot).read_bytes().startswith(b"\x89PNG")
