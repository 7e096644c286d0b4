"""What the script of examples/classification fine-tunes."""

from pathlib import Path

from linformer_fairseq.classification.arguments import Study, parse
from tests.fairseq_commands import ROOT
from tests.recipe.scripts import study_arguments


def study(out: Path, *arguments: str) -> Study:
    program = "linformer_fairseq.classification"
    return parse(study_arguments("classification/run", out, *arguments, program=program))


def test_the_models_of_the_pretraining_s_script(tmp_path: Path) -> None:
    found = study(tmp_path / "out", "--data", "texts")
    assert found.pretrained == ROOT / "results" / "masked-lm"
    given = study_arguments("masked_lm/run", tmp_path / "out", "--data", "t", program="linformer_fairseq.masked_lm")
    assert given[given.index("--out") + 1] == str(found.pretrained)


def test_arguments_of_the_script_are_its_users(tmp_path: Path) -> None:
    found = study(tmp_path / "out", "--data", "texts", "--pretrained", "models", "--out", "there", "--seeds", "4")
    assert (found.pretrained, found.out, found.seeds) == (Path("models"), Path("there"), [4])
