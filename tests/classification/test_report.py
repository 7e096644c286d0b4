"""What results become: merged with those of other machines, and told."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from linformer_fairseq.classification.report import write_report
from linformer_fairseq.classification.results import check_same, read_results
from linformer_fairseq.cli.errors import UserError

ACCURACIES = {("transformer", 1): 80.0, ("transformer", 2): 90.0, ("linformer", 1): 70.0}
SETTINGS = {
    "pretraining k": 8,
    "pretraining length": 1024,
    "fine-tuning epochs": 1,
    "fine-tuning batch_size": 4,
    "fine-tuning lr": 0.001,
    "fine-tuning dropout": 0.1,
    "fine-tuning weight_decay": 0.01,
    "fine-tuning precision": "fp32",
    "fine-tuning truncate": True,
}


def row(arm: str, seed: int, **changed: Any) -> dict[str, Any]:
    score = {"accuracy": ACCURACIES.get((arm, seed), 50.0), "f1": 33.3, "matthews": 2.5, "predicted": "0 1"}
    return {
        **{"set": "news", "arm": arm, "seed": seed, "pretraining_seed": 1, "parameters": 12345, "updates": 40},
        **{"seconds": 10.0, "curve": [[20, 90.0], [40, 80.0]], "jobs": 2, "threads": 1, "machine": "m"},
        **{"command": ["python", "-m", "worker"], "dev": {**score, "accuracy": 99.0}, "test": score},
        **changed,
    }


def results(**changed: Any) -> dict[str, Any]:
    sizes = {"texts": 200, "mean": 31.25, "longest": 2000, "cut": 25}
    arms = {"transformer": ("Transformer", ""), "linformer": ("Linformer", "--linformer-k 8")}
    return {
        "settings": SETTINGS,
        "metrics": ["accuracy", "f1"],
        "commands": ["python -m study"],
        "machines": ["a machine"],
        "arms": {name: {"label": label, "what": "", "flags": flags} for name, (label, flags) in arms.items()},
        "sets": {
            "news": {
                **{"labels": ["a", "b"], "sha256": {"train": "x"}, "classes": {"test": "0 1", "dev": "1"}},
                **dict.fromkeys(("train", "dev", "test"), sizes),
            }
        },
        "trainings": [row(*key) for key in ACCURACIES],
        "differences": [
            {"set": "news", "arm": "linformer", "seeds": [1], "mean": -10.0, "low": -12.0, "high": 1.5},
        ],
        **changed,
    }


def report(found: dict[str, Any], folder: Path) -> str:
    (folder / "results.json").write_text(json.dumps(found))
    write_report(folder)
    return (folder / "report.md").read_text()


def cells(text: str, *beginning: str) -> list[list[str]]:
    """The cells of all lines of tables that begin with these."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return [line[len(beginning) :] for line in lines if line[: len(beginning)] == list(beginning)]


def test_the_tables(tmp_path: Path) -> None:
    text = report(results(), tmp_path)
    spread = statistics.stdev([80, 90])
    # test, that of the one seed which both have, dev, F1, and what the model is
    own = cells(text, "Transformer")[:4]
    assert own == [[f"85.00 ± {spread:.2f}"], ["80.00"], ["99.00 ± 0.00"], ["33.30 ± 0.00"]]
    assert cells(text, "Linformer")[:5] == [["70.00"], ["70.00"], ["-10.00 [-12.00, +1.50]"], ["99.00"], ["33.30"]]
    assert cells(text, "news", "test") == [["200", "2", "31.2", "2,000", "12.5%"]]
    assert cells(text, "Linformer", "news") == [["1", "1", "12,345", "40", "20", "250", "2 × 1"]]
    assert "texts of up to n = 1,024 tokens; longer ones are cut to their beginning" in text
    assert "1 epoch of 4 texts" in text
    assert "    python -m study" in text
    assert (tmp_path / "accuracy.png").stat().st_size > 1000
    assert "(accuracy.png)" in text


def test_a_mean_over_sets_where_a_model_has_all(tmp_path: Path) -> None:
    found = results(differences=[])
    found["sets"]["mail"] = found["sets"]["news"]
    found["trainings"] += [row("transformer", 1, set="mail")]
    text = report(found, tmp_path)
    assert cells(text, "Transformer")[0] == [f"85.00 ± {statistics.stdev([80, 90]):.2f}", "80.00", "82.50"]
    assert cells(text, "Linformer")[0] == ["70.00", "–", "–"]
    assert "bootstrap" not in text


def test_models_with_fewer_seeds_are_compared_by_those_that_all_have(tmp_path: Path) -> None:
    text = report(results(), tmp_path)
    assert "Seed 1 alone, by which models with fewer seeds are to be compared:" in text
    assert "with seeds 1, 2, some models with fewer of them, and those without a deviation with one." in text
    text = report(
        results(trainings=[row(arm, seed) for arm in ("transformer", "linformer") for seed in (1, 2)]), tmp_path
    )
    assert "alone" not in text
    assert "with seeds 1, 2." in text
    text = report(results(trainings=[row("transformer", 1), row("linformer", 2)]), tmp_path)
    assert "alone" not in text


def test_a_report_says_where_k_differs(tmp_path: Path) -> None:
    found = results()
    for name, differs in (("layerwise", False), ("k = 4", True)):
        found["arms"]["linformer"]["label"] = f"Linformer, {name}"
        assert ("k = 8 (unless a table says otherwise)" in report(found, tmp_path)) == differs


def test_results_of_the_same_study(tmp_path: Path) -> None:
    other = results(trainings=[row("linformer", 2)])
    check_same(tmp_path, results(), other)
    check_same(tmp_path, results(), {**other, "sets": {"mail": other["sets"]["news"]}})
    with pytest.raises(UserError, match="has transformer on news with seed 1, which is there already: leave one out"):
        check_same(tmp_path, results(), results())
    changed = {**SETTINGS, "fine-tuning lr": 0.5}
    with pytest.raises(UserError, match=r"is of another study, its fine-tuning lr 0.5 and not 0.001: leave it out"):
        check_same(tmp_path, results(), {**other, "settings": changed})
    news = {**other["sets"]["news"], "labels": ["a", "c"]}
    with pytest.raises(UserError, match="has another news, with other texts or labels: leave it out"):
        check_same(tmp_path, results(), {**other, "sets": {"news": news}})


def test_only_results_of_a_study_are_read(tmp_path: Path) -> None:
    for content in ({}, {"trainings": [], "commands": []}):
        (tmp_path / "results.json").write_text(json.dumps(content))
        with pytest.raises(UserError, match=r"does not hold the results of a study of classification"):
            read_results(tmp_path / "results.json")
    with pytest.raises(UserError, match=r"no\.json is missing"):
        read_results(tmp_path / "no.json")
