"""The figures of the report, from results that were written by hand."""

from pathlib import Path
from typing import Any

import numpy
import pytest
from sacrebleu.metrics import BLEU

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents.arms import ARMS
from linformer_fairseq.documents.base_tables import beside_bases
from linformer_fairseq.documents.cells import score_cell
from linformer_fairseq.documents.cost_tables import _cost_table
from linformer_fairseq.documents.found import difference_of, rows_of
from linformer_fairseq.documents.glossary_tables import glossary
from linformer_fairseq.documents.plots import write_plots
from linformer_fairseq.documents.report import _beyond_training, write_report
from linformer_fairseq.documents.results import _described, _differences
from linformer_fairseq.documents.score_tables import _quality_of_each_seed, completeness
from linformer_fairseq.documents.sets import DocumentSet
from linformer_fairseq.documents.translate import Way
from linformer_fairseq.recipe.scores import bleu_of_counts
from tests.fairseq_commands import ROOT

DOCUMENTS = DocumentSet(
    "test", "test", "test1", [(0, 1), (1, 2), (2, 3), (3, 4)], ["a"] * 4, ["b"] * 4, [9, 5, 7, 3], "de"
)
WAY = Way("test", 512)


def row(arm: str, seed: int, matches: list[int], longest: int = 512) -> dict[str, Any]:
    """A row of a training, whose translation of each document has so many of ten n-grams right."""
    counts = [[10, 10, *[right] * 4, *[10] * 4] for right in matches]
    score = bleu_of_counts(BLEU(), numpy.array(counts).sum(0))
    return {
        "arm": arm,
        "seed": seed,
        "set": "test",
        "longest": longest,
        "mode": "forced",
        "d_bleu": score,
        "counts": counts,
    }


ROWS = [
    row("transformer", 1, [5, 5, 5, 5]),
    row("transformer", 2, [8, 8, 8, 8]),
    row("two-level", 1, [6, 4, 5, 5]),
    row("two-level", 2, [8, 8, 8, 8]),
    row("linformer", 1, [4, 4, 4, 4]),
    row("sentences", 1, [5, 5, 5, 6], longest=2048),
]


@pytest.fixture
def found() -> dict[str, Any]:
    arms = {name: vars(_described(name, 64)) for name in ("transformer", "two-level", "linformer", "sentences")}
    return {"arms": arms, "rows": ROWS, "differences": _differences(ROWS, {"test": DOCUMENTS})}


def test_windows_beyond_training_are_told(found: dict[str, Any]) -> None:
    sizes = {"lengths": [512, 2048], "longest_example": 1024, "k": 64}
    assert "windows rather than wider ones, k = 128 in encoder" in _beyond_training({**found, **sizes})
    assert _beyond_training({**found, **sizes, "longest_example": 2048}) == ""
    assert _beyond_training({**found, **sizes, "arms": {"transformer": found["arms"]["transformer"]}}) == ""


def test_differences_are_over_the_seeds_that_both_models_have(found: dict[str, Any]) -> None:
    linformer = difference_of(found, "linformer", WAY)
    assert (linformer["seeds"], linformer["mean"]) == ([1], pytest.approx(-10))
    assert linformer["low"] == linformer["high"] == pytest.approx(-10)
    two_levels = difference_of(found, "two-level", WAY)
    assert (two_levels["seeds"], two_levels["mean"]) == ([1, 2], pytest.approx(0))
    # the documents from the shortest: 3, 5, 7 and 9 tokens
    assert [third["mean"] for third in two_levels["thirds"]] == pytest.approx([-2.5, 0, 5])
    assert two_levels["low"] < 0 < two_levels["high"]
    assert difference_of(found, "sentences", WAY)["mean"] == pytest.approx(2.5)
    assert difference_of(found, "transformer", WAY) is None


def test_cells_have_the_mean_of_the_seeds_and_the_difference(found: dict[str, Any]) -> None:
    assert score_cell(found, "transformer", WAY) == "65.00"
    assert score_cell(found, "linformer", WAY) == "40.00 (-10.00 [-10.00, -10.00])"
    assert score_cell(found, "sentences", WAY).startswith("52.50 (+2.50 [")
    assert score_cell(found, "two-level", Way("test", 1024)) == "–"
    assert list(rows_of(found, WAY)) == list(found["arms"])


def cells_of(table: str) -> list[list[str]]:
    """The cells of a Markdown table, the head first."""
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    return [lines[0], *lines[2:]]


def test_models_with_several_seeds_have_a_line_for_each(found: dict[str, Any]) -> None:
    _, shown = _quality_of_each_seed(found)
    assert cells_of(shown) == [
        ["Model", "Seed", "test, 512 tokens", "test, 2,048 tokens"],
        ["Transformer", "1", "50.00", "–"],
        ["Transformer", "2", "80.00", "–"],
        ["two levels", "1", "50.00", "–"],
        ["two levels", "2", "80.00", "–"],
    ]
    found["rows"] = [own for own in ROWS if own["seed"] == 1]
    assert _quality_of_each_seed(found) == []


def glossary_row(arm: str, seed: int, right: list[int]) -> dict[str, Any]:
    """A row of the glossary set, where so many of each document's ten names are right."""
    counts = [[own, 10] for own in right]
    share = {"shortest": 1, "longest": 64, "number": 40, "score": sum(right) / 40, "counts": counts, "chance": 0.25}
    return {**row(arm, seed, [5, 5, 5, 5]), "set": "glossary", "glossary": [share]}


def test_names_that_are_right_stand_beside_the_difference_and_each_seed(found: dict[str, Any]) -> None:
    found["rows"] = [
        glossary_row("transformer", 1, [4, 4, 4, 4]),
        glossary_row("transformer", 2, [6, 6, 6, 6]),
        glossary_row("two-level", 1, [8, 8, 8, 8]),
    ]
    found["documents"] = {"glossary": 4}
    found["differences"] = _differences(found["rows"], {"glossary": DOCUMENTS})
    _, told, every, _, by_seed = glossary(found)
    assert told.startswith("4 synthetic documents")
    assert cells_of(every) == [
        ["Model", "1 to 64 tokens (40)", "d-BLEU"],
        ["any name of the glossary", "25.0", "–"],
        ["Transformer", "50.0", "50.00"],
        ["two levels", "80.0 (+40.0 [+40.0, +40.0])", "50.00"],  # over the first seed, which both have
    ]
    assert [cells[1:3] for cells in cells_of(by_seed)[1:]] == [["1", "40.0"], ["2", "60.0"]]


def test_two_levels_stand_beside_full_attention_with_the_same_convolution(found: dict[str, Any]) -> None:
    assert beside_bases(found) == []
    base, arm = "transformer-convolution", "two-level-convolution"
    tested = [row("transformer", 1, [1, 1, 1, 1]), row(base, 1, [5, 5, 5, 5]), row(arm, 1, [6, 4, 5, 5])]
    names = [glossary_row(base, 1, [4, 4, 4, 4]), glossary_row(arm, 1, [8, 8, 8, 8])]
    found["rows"] = [*tested, *names]
    found["arms"] |= {name: vars(_described(name, 64)) for name in (base, arm)}
    found["differences"] = _differences(found["rows"], {"test": DOCUMENTS, "glossary": DOCUMENTS})
    assert difference_of(found, arm, WAY)["mean"] == pytest.approx(40)
    _, told, shown = beside_bases(found)
    assert told == "In brackets the difference from Transformer with convolution:"
    _, scores, *thirds, by_distance = cells_of(shown)
    assert scores[:2] == ["d-BLEU, test, 512 tokens", "50.00"]
    assert scores[2].startswith("50.00 (+0.00 [")
    assert [(name, cell.split()[0]) for name, _, cell in thirds] == [
        ("its shortest third", "-5.00"),
        ("its middle third", "+0.00"),
        ("its longest third", "+10.00"),
    ]
    assert by_distance == ["names, 1 to 64 tokens, %", "40.0", "80.0 (+40.0 [+40.0, +40.0])"]


def test_missing_displaced_and_repeated_sentences_are_told_in_per_cent(found: dict[str, Any]) -> None:
    facts = {"length_ratio": 0.98, "missing": 0.25, "displaced": None, "repeated": 0.125, "halved": 2}
    found["rows"] = [{**row("transformer", 1, [5, 5, 5, 5]), **facts}]
    _, _, shown, _ = completeness(found)
    assert cells_of(shown)[1] == ["Transformer", "50.00", "0.980", "25.0", "–", "12.5", "2"]


def test_costs_stand_beside_multiples_of_the_transformers(found: dict[str, Any]) -> None:
    costs = [
        {"arm": "transformer", "tokens_per_second": 2000.0, "note": "", "base": {"tokens_per_second": 2000.0}},
        {"arm": "two-level", "tokens_per_second": 5000.0, "note": "", "base": {"tokens_per_second": 4000.0}},
        {"arm": "linformer", "tokens_per_second": None, "note": "did not fit into memory", "base": {}},
        {"arm": "sentences", "tokens_per_second": 7000.0, "note": "", "base": {}},
    ]
    rows = {512: {own["arm"]: own for own in costs}, 1024: {"transformer": costs[0]}}
    shown = _cost_table(found, rows, "tokens_per_second", 1.0, ",.0f")
    assert cells_of(shown) == [
        ["Model", "512 tokens", "1,024 tokens"],
        ["Transformer", "2,000 (1.00)", "2,000 (1.00)"],
        ["two levels", "5,000 (1.25)", "–"],
        ["Linformer", "did not fit into memory", "–"],
        ["Transformer, sentence by sentence", "7,000", "–"],
    ]


def test_without_the_transformer_there_are_costs_but_nothing_to_compare(found: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "quality-and-speed.png").touch()  # an earlier report's
    del found["arms"]["transformer"]
    rows = [
        {
            "part": part,
            "length": 512,
            "arm": "linformer",
            "tokens_per_second": 1.0,
            "seconds": 1.0,
            "note": "",
            "base": {},
        }
        for part in ("training", "translation")
    ]
    own = [own for own in ROWS if own["arm"] == "linformer"]
    found |= {"rows": own, "differences": [], "costs": {"rows": rows, "asked": {}, "machines": []}}
    assert set(write_plots(found, tmp_path).values()) == {path.name for path in tmp_path.iterdir()} == {"costs.png"}


@pytest.mark.parametrize("stored", sorted((ROOT / "docs" / "documents").iterdir()), ids=lambda path: path.name)
def test_the_documented_report_is_that_of_its_results(stored: Path, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes((stored / "results.json").read_bytes())
    write_report(tmp_path)
    assert (tmp_path / "report.md").read_text() == (stored / "report.md").read_text()
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in stored.iterdir()}


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text('{"rows": []}')
    with pytest.raises(UserError, match="does not hold the results of a study of documents"):
        write_report(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_flags_of_a_model_say_its_k_where_it_has_one() -> None:
    assert "--linformer-k 64 " in _described("two-level", 64).flags
    for name in ("window", "nystromformer", "performer", "longformer"):
        assert "--linformer-k" not in _described(name, 64).flags
    assert _described("sentences", 64).flags == ""
    assert len({arm.label for arm in ARMS.values()}) == len(ARMS)
