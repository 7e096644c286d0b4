"""What the tables say of results that are known."""

from pathlib import Path
from typing import Any

import numpy
import pytest

from linformer_fairseq.quality.arguments import parse
from linformer_fairseq.quality.report import report_text
from linformer_fairseq.quality.results import Result, findings
from linformer_fairseq.quality.variants import VARIANTS, Training, described
from linformer_fairseq.recipe.settings import Model
from tests.quality.known import LENGTHS, REFERENCES, SUBSET, result, worse

LONG = LENGTHS > 8


def row(text: str, name: str, table: int) -> list[str]:
    """The cells of a model in the table of that number; those of the heading are of "Model"."""
    tables = [part for part in text.split("\n\n") if part.startswith("|")]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in tables[table].splitlines()]
    return {cells[0]: cells[1:] for cells in rows}[name]


def linformer(lines: list[str], seed: int) -> Result:
    training = Training(VARIANTS["linformer"], Model(8, "encoder,cross"), seed, None, None)
    return Result(training, SUBSET, 3.0 + seed, {"cross": 2.0 * seed}, result(lines).counts)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """A baseline, and a Linformer that is as good up to eight tokens and loses beyond them; two seeds."""
    systems = []
    for seed in (1, 2):
        lines = worse(REFERENCES, 0.1, seed)
        systems.append(result(lines, seed))
        bad = worse(lines, 0.3, seed)
        systems.append(linformer([bad[i] if LONG[i] else lines[i] for i in range(len(lines))], seed))
    return systems


@pytest.fixture(scope="module")
def found(text: Path, results: list[Result]) -> dict[str, Any]:
    study = parse(["--data", str(text), "--out", "out", "--variants", "transformer,linformer", "--k", "8"])
    return findings(study, {"valid": results})


def test_a_worse_model_is_below_the_baseline(found: dict[str, Any], results: list[Result]) -> None:
    text = report_text(found, {})
    baseline, own = ([r.bleu() for r in results if r.training.variant.name == n] for n in ("transformer", "linformer"))
    seeds, perplexity, bleu, difference, ratio = row(text, "Linformer, k = 8", 0)
    assert (seeds, perplexity, ratio) == ("2", "4.50 (4.00, 5.00)", "1.000 (1.000, 1.000)")
    assert bleu == f"{numpy.mean(own):.1f} ({own[0]:.1f}, {own[1]:.1f})"
    assert difference.startswith(f"{numpy.mean(own) - numpy.mean(baseline):+.2f} [-")
    assert found["differences"][0]["high"] < 0
    assert row(text, "Transformer", 0)[3] == "–"
    assert "There are 2 seeds (1, 2)" in text


def test_what_the_variants_are_is_stored_with_their_results(found: dict[str, Any]) -> None:
    """The report tells what they were then; results from before that was stored have the names of their time."""
    text = report_text(found, {})
    assert "*Linformer*: learned E and F in encoder and cross-attention" in text
    flags = "`--linformer-k k --linformer-attention encoder,cross --linformer-projection linear`"
    assert row(text, "Linformer", 3) == [flags]
    later = {
        "linformer": {"label": "something", "what": "else", "flags": "--x"},
        "transformer": {"label": "T", "what": ""},
    }
    text = report_text({**found, "variants": later}, {})
    assert "*something*: else" in text
    assert row(text, "something, k = 8", 0)
    assert row(text, "something", 3) == ["`--x`"]
    former = {name: value for name, value in found.items() if name != "variants"}
    rows = [{**own, "variant": "two-level-all"} if own["k"] else own for own in found["results"]]
    text = report_text({**former, "results": rows, "differences": []}, {})
    assert "k/2 causal slots beside the last k/2 tokens" in text
    assert "## Flags" not in text


@pytest.mark.parametrize("name", VARIANTS)
def test_description_of_every_variant(name: str) -> None:
    flags = described(name).flags
    assert bool(flags) == bool(VARIANTS[name].attention)
    assert "{" not in flags
    if VARIANTS[name].projection == "two-level":
        assert "--linformer-exact-below 0" in flags


def test_by_length(found: dict[str, Any], results: list[Result]) -> None:
    text = report_text(found, {"lengths": "a.png"})
    assert row(text, "Model", 1) == [f"1 to 8 tokens ({(~LONG).sum()})", f"9 to 16 tokens ({LONG.sum()})"]
    short, long = row(text, "Linformer, k = 8", 1)
    assert "(+0.0) · 1.00" in short
    baseline, own = (
        numpy.mean([r.bleu(LONG) for r in results if r.training.variant.name == name])
        for name in ("transformer", "linformer")
    )
    assert long == f"{own:.1f} ({own - baseline:+.1f}) · 1.00"
    assert row(text, "Linformer, k = 8", 2) == ["–", "3.00", "–"]
    assert "## Plots\n\n![lengths](a.png)" in text


def test_one_seed_without_the_baseline(found: dict[str, Any]) -> None:
    """Nothing is compared, and what one seed is worth is said."""
    rows = [own for own in found["results"] if own["k"] and own["seed"] == 1]
    text = report_text({**found, "results": rows, "differences": []}, {})
    assert row(text, "Linformer, k = 8", 0)[3] == "–"
    assert "one seed (1)" in text
    assert "another seed alone moves BLEU by as much" in text
