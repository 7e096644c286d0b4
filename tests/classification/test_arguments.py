"""The study's command line."""

from pathlib import Path

import pytest

from linformer_fairseq.classification.arguments import parse
from linformer_fairseq.cli.errors import UserError

GIVEN = ["--pretrained", "pretrained", "--data", "texts", "--out", "out"]


def test_defaults() -> None:
    study = parse(GIVEN)
    assert (study.sets, study.arms, study.length, study.k, study.ks, study.sharings) == ([], [], None, None, [], [])
    assert (study.seeds, study.metrics, study.settings.epochs, study.settings.truncate) == (
        [1, 2, 3],
        ["accuracy"],
        10,
        True,
    )


def test_what_is_given() -> None:
    study = parse([*GIVEN, "--sets", "a,b,a", "--arms", "linformer,transformer", "--metrics", "f1", "--", "--cpu"])
    assert (study.sets, study.arms, study.metrics) == (["a", "b"], ["linformer", "transformer"], ["accuracy", "f1"])
    study_of_linformer = parse([*GIVEN, "--ks", "64,256", "--sharings", "layerwise,none"])
    assert (study_of_linformer.ks, study_of_linformer.sharings) == ([64, 256], ["layerwise", "none"])
    assert (study.settings.train_args, study.settings.on_cpu) == (("--cpu",), True)
    assert study.command.endswith("--metrics f1 -- --cpu")


def test_a_report_needs_its_folder_alone() -> None:
    assert parse(["--out", "out", "--report-only"]).report_only


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--out", "out", "--data", "texts"], "--pretrained is missing: name the folder that python -m"),
        (["--out", "out", "--pretrained", "x"], "--data is missing: name a folder of labelled texts"),
        ([*GIVEN, "--arms", "lstm"], "'lstm' is not a model: choose from transformer, "),
        ([*GIVEN, "--metrics", "bleu"], "'bleu' is not a metric: choose from accuracy, f1, matthews"),
        ([*GIVEN, "--sharings", "all"], "'all' is not a --linformer-sharing: choose from none, headwise, key-value"),
        ([*GIVEN, "--epochs", "0"], "'0' is not a whole number from 1 on"),
        ([*GIVEN, "--warmup", "1"], "'1' is not a number from 0 to below 1"),
    ],
)
def test_refusals(given: list[str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        parse(given)


def test_a_file_is_no_folder_for_results(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(UserError, match="out is a file: name a folder"):
        parse([*GIVEN, "--out", str(tmp_path / "out")])
