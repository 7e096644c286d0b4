"""examples/wmt14_en_de/evaluate.sh: scores, and what it refuses."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU, CHRF

from tests.examples.recipes import refused, run

pytestmark = pytest.mark.slow


@pytest.fixture
def trained(study: Path, tmp_path: Path) -> tuple[Path, Path, Path]:
    """Returns BIN, RUN and REFERENCE of a model that has been evaluated, in a copy."""
    shutil.copytree(study / "study/runs/transformer/seed-1", tmp_path / "run")
    return study / "study/bin", tmp_path / "run", study / "study/reference.de"


def test_the_scores_are_those_of_the_translation(study: Path) -> None:
    folder = study / "study/runs/transformer/seed-1"
    scores = json.loads((folder / "scores.json").read_text())
    hypotheses = (folder / "test.de").read_text().split("\n")[:-1]
    references = (study / "study/reference.de").read_text().split("\n")[:-1]
    assert len(hypotheses) == len(references) == 20
    assert scores["BLEU"] == round(BLEU().corpus_score(hypotheses, [references]).score, 2)
    assert scores["chrF"] == round(CHRF().corpus_score(hypotheses, [references]).score, 2)
    assert scores["averaged"] == 2
    assert [signature.split("|")[-2] for signature in scores["signatures"]] == ["smooth:exp", "space:no", "smooth:none"]
    log = (folder / "generate.log").read_text()
    assert f"in {scores['translation, s']:.1f}s" in log
    # detokenised, in the order of the test set
    first = next(line for line in log.splitlines() if line.startswith("D-0\t")).split("\t")[2]
    assert hypotheses[0] == first
    validated = (folder / "validate.log").read_text()
    assert f'"valid_ppl": "{scores["perplexity"]:g}"' in validated


def test_an_evaluation_is_not_repeated_and_other_flags_are_refused(trained: tuple[Path, ...], tmp_path: Path) -> None:
    flags = ["--max-len-a", "0", "--max-len-b", "10"]
    command = trained[1] / "evaluated"
    command.write_text(re.sub("--path '.*'", f"--path {trained[1]}/average.pt", command.read_text()))
    assert run("evaluate.sh", *trained, *flags, cwd=tmp_path).ok() == f"{trained[1]}: already evaluated\n"
    sentence = refused("evaluate.sh", *trained, *flags, "--beam", "2", cwd=tmp_path)
    assert "was evaluated with different flags (<: then, >: now): > --beam 2;" in sentence
    assert sentence.endswith("scores.json to evaluate it with these.")


def test_what_cannot_be_evaluated(trained: tuple[Path, ...], tmp_path: Path) -> None:
    binary, folder, reference = trained
    (folder / "scores.json").unlink()
    short = tmp_path / "short.de"
    short.write_text("ein Satz\n")
    result = run("evaluate.sh", binary, folder, short, "--max-len-a", "0", "--max-len-b", "2", cwd=tmp_path)
    assert result.status == 1
    assert "gave 20 translations for the 1 lines of" in result.sentence()
    assert not (folder / "scores.json").exists()
    sentence = refused("evaluate.sh", binary, folder, reference, cwd=tmp_path, AVERAGE="7")
    assert sentence.endswith("fewer than the 7 to be averaged: set AVERAGE to 2 or less.")
    assert "name the reference" in refused("evaluate.sh", binary, folder, tmp_path / "no.de", cwd=tmp_path)
    assert "train the model first" in refused("evaluate.sh", binary, tmp_path / "no", reference, cwd=tmp_path)
    assert "name the folder that fairseq-preprocess" in refused(
        "evaluate.sh", tmp_path / "no", folder, reference, cwd=tmp_path
    )


def test_compounds_are_split_as_by_perl() -> None:
    """The rule that evaluate.sh gives sed is tensor2tensor's for perl: matches do not overlap."""
    script = (Path(__file__).parents[2] / "examples/wmt14_en_de/evaluate.sh").read_text()
    rule = script.split("sed -E '")[1].split("'")[0]
    found = subprocess.run(
        ["sed", "-E", rule], input="rich-text a-b-c x - y\n", text=True, capture_output=True, check=True
    )
    assert found.stdout == "rich ##AT##-##AT## text a ##AT##-##AT## b-c x - y\n"
