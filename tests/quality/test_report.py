"""What the tables say of results that are known."""

from pathlib import Path

import numpy
import pytest

from linformer_fairseq.quality.arguments import Study, parse
from linformer_fairseq.quality.report import differences, groups, report_text
from linformer_fairseq.quality.results import Result
from linformer_fairseq.quality.trainings import Training
from linformer_fairseq.quality.variants import VARIANTS
from linformer_fairseq.recipe.settings import Model
from tests.quality.test_results import LENGTHS, REFERENCES, SUBSET, result, worse

LONG = LENGTHS > 8


def row(text: str, name: str, table: int) -> list[str]:
    """The cells of a model in the table of that number; those of the heading are of "Model"."""
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables[table].splitlines()]
    return {cells[0]: cells[1:] for cells in rows}[name]


def linformer(lines: list[str], seed: int) -> Result:
    training = Training(VARIANTS["paper"], Model(8, "encoder,cross"), seed, None, None)
    return Result(training, SUBSET, 3.0 + seed, {"cross": 2.0 * seed}, result(lines).counts)


def study_of(text: Path, variants: str, seeds: str, ks: str) -> Study:
    return parse(["--data", str(text), "--out", "out", "--variants", variants, "--seeds", seeds, "--k", ks])


@pytest.fixture(scope="module")
def study(text: Path) -> Study:
    return study_of(text, "transformer,paper", "1,2", "8")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """A baseline, and a Linformer that is as good up to eight tokens and loses beyond them."""
    systems = []
    for seed in (1, 2):
        lines = worse(REFERENCES, 0.1, seed)
        systems.append(result(lines, seed))
        bad = worse(lines, 0.3, seed)
        systems.append(linformer([bad[i] if LONG[i] else lines[i] for i in range(len(lines))], seed))
    return systems


def test_a_worse_model_is_below_the_baseline(study: Study, results: list[Result]) -> None:
    found = groups(results)
    assert list(found) == [("transformer", 0), ("paper", 8)]
    assert [own.training.seed for own in found["paper", 8]] == [1, 2]
    assert differences(found)["paper", 8].high < 0
    text = report_text(study, {"valid": results}, {})
    bleus = [own.bleu() for own in found["paper", 8]]
    seeds, perplexity, bleu, difference, ratio = row(text, "paper, k = 8", 0)
    assert (seeds, perplexity, ratio) == ("2", "4.50 (4.00, 5.00)", "1.000 (1.000, 1.000)")
    assert bleu == f"{numpy.mean(bleus):.1f} ({bleus[0]:.1f}, {bleus[1]:.1f})"
    lost = numpy.mean(bleus) - numpy.mean([own.bleu() for own in found["transformer", 0]])
    assert difference.startswith(f"{lost:+.2f} [-")
    assert row(text, "transformer", 0)[3] == "–"


def test_by_length(study: Study, results: list[Result]) -> None:
    text = report_text(study, {"valid": results}, {})
    assert row(text, "Model", 1) == [f"1 to 8 tokens ({(~LONG).sum()})", f"9 to 16 tokens ({LONG.sum()})"]
    short, long = row(text, "paper, k = 8", 1)
    assert "(+0.0) · 1.00" in short
    bleus = [numpy.mean([own.bleu(LONG) for own in group]) for group in groups(results).values()]
    assert long == f"{bleus[1]:.1f} ({bleus[1] - bleus[0]:+.1f}) · 1.00"
    assert row(text, "paper, k = 8", 2) == ["–", "3.00", "–"]


def test_plots_only_where_there_are_some(study: Study, results: list[Result]) -> None:
    assert "## Plots" not in report_text(study, {"valid": results}, {})
    assert "## Plots\n\n![lengths](a.png)" in report_text(study, {"valid": results}, {"lengths": "a.png"})


def test_without_the_baseline_nothing_is_compared(study: Study, results: list[Result]) -> None:
    text = report_text(study, {"valid": [own for own in results if own.training.model.k]}, {})
    assert row(text, "paper, k = 8", 0)[3] == "–"


def test_what_is_asked_for_twice_is_done_once(text: Path) -> None:
    study = study_of(text, "paper,paper", "2,1,2", "8,8")
    assert ([variant.name for variant in study.variants], study.seeds, study.ks) == (["paper"], [2, 1], [8])
