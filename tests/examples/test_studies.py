"""examples/studies: a study from its YAML to its report, what is done stays done, and what is refused."""

import csv
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from tests.examples.conftest import STUDY
from tests.examples.recipes import EXAMPLES, run
from tests.fairseq_commands import Result

pytestmark = pytest.mark.slow


def doit(*arguments: str, cwd: Path) -> Result:
    return run("doit", "-f", EXAMPLES / "studies/dodo.py", *arguments, "study=study.yaml", cwd=cwd)


def test_arms_and_seeds_end_in_a_report(study: Path) -> None:
    out = study / "study"
    with open(out / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["arm"], row["seed"], row["k"]) for row in rows] == [
        *(("transformer", "1", "0"), ("transformer", "2", "0")),
        *(("linformer-k4", "1", "4"), ("linformer-k4", "2", "4")),
        *(("tuned", "1", "0"), ("converted", "1", "8")),
    ]
    assert [row["updates"] for row in rows] == ["12"] * 5 + [""]
    assert rows[0]["perplexity"] != rows[1]["perplexity"]
    report = (out / "report.md").read_text()
    assert "| transformer  |    1, 2 |" in report
    assert all(
        picture in report and (out / picture).stat().st_size > 10_000 for picture in ("curves.png", "comparison.png")
    )
    assert "--arch linformer_transformer" in report


def test_what_is_done_stays_done(study: Path) -> None:
    times = {path: path.stat().st_mtime_ns for path in study.glob("study/runs/*/*/*.pt")}
    assert times
    doit(cwd=study).ok()
    assert {path: path.stat().st_mtime_ns for path in study.glob("study/runs/*/*/*.pt")} == times


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            ("flags: --linformer-k 4", "flags: --linformer-k 0"),
            "arm linformer-k4 of * has k = 0: project onto 1 or more",
        ),
        (("{arch: linformer_transformer,", "{arhc: linformer_transformer,"), "arm linformer-k4 of * has a key 'arhc'"),
        (("seeds:", "seed:"), "has a key 'seed' that is not known: use out, text, prepare"),
        (("text: made text\n", ""), "lacks text: add it"),
        (("baseline: transformer", "baseline: rnn"), "the baseline rnn is no arm of"),
        (("from: transformer", "from: rnn"), "arm tuned of * is made from rnn, which is no arm of it"),
        (
            ("exact-below 0, seeds: [1]", "exact-below 0, seeds: [3]"),
            "arm converted of * has seeds that its source transformer lacks",
        ),
        (("{arch: transformer}", "{}"), "needs either arch, to be trained, or convert"),
        (("arms:", "arms: ["), "cannot be read"),
        (("seeds: [1, 2]", "seeds: 2"), "seeds of * is 2, which is not what examples/studies/README.md has"),
        (("wmt14_en_de/prepare.sh", "wmt14_en_de/prepar.sh"), "prepare of * which is no file: name a script"),
    ],
)
def test_a_wrong_yaml_is_refused_in_one_sentence(tmp_path: Path, change: tuple[str, str], sentence: str) -> None:
    assert change[0] in STUDY
    (tmp_path / "study.yaml").write_text(STUDY.replace(*change))
    result = doit(cwd=tmp_path)
    assert result.status == 2
    (line,) = result.output.splitlines()
    assert line.startswith("error: ")
    assert all(part in line for part in sentence.split("*"))
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize(
    ("arm", "sentence"),
    [
        ("{arch: transformer, flags: --encoder-attention-heads 3}", "odd/seed-1 cannot be trained: embed_dim must be"),
        ("{convert: whole, flags: --linformer-projection fft}", "odd cannot be converted: argument --linformer-proj"),
    ],
)
def test_flags_are_tried_before_the_first_training(study: Path, tmp_path: Path, arm: str, sentence: str) -> None:
    """A width that its heads do not divide, an unknown kind; the finished text is taken from the other study."""
    (tmp_path / "study").symlink_to(study / "study")
    (tmp_path / "made text").symlink_to(study / "made text")
    arms = f"arms:\n  whole: {{arch: transformer}}\n  odd: {arm}\n"
    (tmp_path / "study.yaml").write_text(STUDY.split("arms:")[0].replace("baseline: transformer\n", "") + arms)
    result = doit("check", cwd=tmp_path)
    assert result.status != 0
    assert f"error: check: {sentence}" in result.output
    assert not (study / "study/runs/odd").exists()


def test_an_arm_may_start_from_another_or_be_converted(study: Path) -> None:
    """Both are made from the Transformer of the same seed: one hardly trained further, the other not at all."""
    runs = study / "study/runs"
    before, tuned = (read_checkpoint(runs / name / "seed-1/average.pt")["model"] for name in ("transformer", "tuned"))
    assert all(abs(before[name] - tuned[name]).max() < 1e-6 for name in before if before[name].is_floating_point())
    converted = read_checkpoint(runs / "converted/seed-1/checkpoint_best.pt")
    assert converted["cfg"]["model"].arch == "two_level_transformer"
    assert all(torch.equal(before[name], converted["model"][name]) for name in before)
    abouts = [(runs / name / "seed-1/about").read_text() for name in ("transformer", "converted")]
    assert abouts[0] == abouts[1]  # of the same code, on the same machine
    assert len(abouts[0].splitlines()) == 2
