"""The report says what results.json holds."""

import re
from pathlib import Path
from typing import Any

import pytest

from linformer_fairseq.masked_lm.arms import ARMS
from linformer_fairseq.masked_lm.figure import curves, first_seeds
from linformer_fairseq.masked_lm.report import report_text
from linformer_fairseq.masked_lm.tables import by_k, by_kind, by_length, by_sharing, costs, swapped


def training(arm: str, length: int, perplexity: float, seed: int = 1, k: int = 0, sharing: str = "") -> dict[str, Any]:
    return {
        **{"arm": arm, "length": length, "k": k, "sharing": sharing, "seed": seed, "perplexity": perplexity},
        **{"parameters": 1234, "updates": 100, "seconds": 120.0, "jobs": 1, "threads": 2, "machine": "some machine"},
        "curve": [(50, 2 * perplexity), (100, perplexity)],
        "command": ["python", "-m", "worker"],
    }


@pytest.fixture
def found() -> dict[str, Any]:
    split = {"files": ["a.txt"], "documents": 2, "paragraphs": 9, "tokens": 4321}
    return {
        "settings": {
            "vocabulary": 60,
            "arch": "roberta",
            "size_flags": ["--encoder-layers", "4"],
            "updates": 100,
            "convolution": 0,
        }
        | {"max_tokens": 256, "precision": "fp32", "lr": 0.001, "warmup_updates": 10, "dropout": 0.1}
        | {"weight_decay": 0.01},
        "k": 8,
        "exact_below": 768,
        "corpus": {"train": split, "valid": {**split, "tokens": 987}},
        "commands": ["python -m linformer_fairseq.masked_lm"],
        "machines": ["some machine"],
        "arms": {
            name: {"label": arm.label, "what": arm.what, "flags": arm.flags}
            for name, arm in ARMS.items()
            if name in ("transformer", "two-level", "linformer")
        },
        "trainings": [
            training("transformer", 32, 10.0),
            training("two-level", 32, 10.5, k=8),
            training("linformer", 32, 12.0, k=8, sharing="headwise"),
            training("transformer", 64, 8.0),
            training("linformer", 64, 9.0, k=8, sharing="headwise"),
            training("linformer", 32, 13.0, k=4, sharing="headwise"),
            training("linformer", 32, 14.0, k=8, sharing="layerwise"),
            training("transformer", 32, 12.0, seed=2),
            training("two-level", 32, 12.0, seed=2, k=8),
        ],
        "swapped": [
            {
                "arm": "transformer",
                "length": 32,
                "k": 0,
                "share": 0.1,
                "updates": 10,
                "seed": 1,
                "perplexity": 9.5,
                "before": 10.0,
            },
            {
                "arm": "two-level",
                "length": 32,
                "k": 8,
                "share": 0.0,
                "updates": 0,
                "seed": 1,
                "perplexity": 11.0,
                "before": 10.0,
            },
            {
                "arm": "two-level",
                "length": 32,
                "k": 8,
                "share": 0.1,
                "updates": 10,
                "seed": 1,
                "perplexity": 9.9,
                "before": 10.0,
            },
            {
                "arm": "two-level",
                "length": 64,
                "k": 8,
                "share": 0.0,
                "updates": 0,
                "seed": 1,
                "perplexity": 8.8,
                "before": 8.0,
            },
        ],
        "spectra": [
            {"length": 32, "rank": 8, "cumulative": 0.9, "lowest": 0.8, "energy": 0.9}
            | {"mean_rank": 4.0, "highest_rank": 7.5}
        ],
        "costs": {
            "asked": {"repeats": 3, "max_tokens": 256, "precision": "fp32", "threads": 2},
            "machines": ["some machine"],
            "rows": [
                cost("transformer", 100.0, 10_000_000),
                cost("two-level", 150.0, 5_000_000),
                cost("linformer", None, None, "too large"),
            ],
        },
    }


def cost(arm: str, speed: float | None, memory: int | None, note: str = "") -> dict[str, Any]:
    """A row of costs, beside a Transformer of 100 tokens per second in 10 MB."""
    base = {"tokens_per_second": 100.0, "peak_bytes": 10_000_000}
    own = {"tokens_per_second": speed, "peak_bytes": memory}
    return {"arm": arm, "length": 32, **own, "note": note, "base": base}


def cells(parts: list[str]) -> list[list[str]]:
    """The cells of a section's tables, without heads and rules."""
    lines = [line for part in parts for line in part.split("\n") if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if ":--" not in line]


def test_kinds_are_compared_over_the_seeds_that_both_have(found: dict[str, Any]) -> None:
    assert cells(by_kind(found))[1:] == [
        ["Transformer", "11.00 ± 1.41", "", "2", "10.00", "100 (1.00)", "10 (1.00)"],
        ["two levels", "11.25 ± 1.06", "+2.5% ± 3.5%", "2", "10.50", "150 (1.50)", "5 (0.50)"],
        ["Linformer", "12.00", "+20.0%", "1", "12.00", "too large", "too large"],
    ]


def test_projected_dimensions(found: dict[str, Any]) -> None:
    assert cells(by_k(found)) == [
        ["", "n = 32"],
        ["Transformer", "10.00"],
        ["Linformer, k = 4", "13.00 (+30.0%)"],
        ["Linformer, k = 8", "12.00 (+20.0%)"],
    ]
    found["trainings"] = [row for row in found["trainings"] if row["k"] != 4]
    assert by_k(found) == []


def test_sharing(found: dict[str, Any]) -> None:
    assert cells(by_sharing(found))[1:] == [
        ["Transformer", "10.00", "", "1,234"],
        ["Linformer, headwise", "12.00", "+20.0%", "1,234"],
        ["Linformer, layerwise", "14.00", "+40.0%", "1,234"],
    ]


def test_lengths(found: dict[str, Any]) -> None:
    assert cells(by_length(found)) == [
        ["Model", "n = 32", "n = 64"],
        ["Transformer", "10.00", "8.00"],
        ["Linformer", "12.00 (+20.0%)", "9.00 (+12.5%)"],
    ]


def test_replaced_attention_is_compared_with_the_same_transformer(found: dict[str, Any]) -> None:
    assert cells(swapped(found)) == [
        ["Attention", "no training", "10% of the updates"],
        ["Transformer", "10.00", "9.50 (-5.0%)"],
        ["two levels", "11.00 (+10.0%)", "9.90 (-1.0%)"],
        ["Attention", "n = 64"],
        ["Transformer", "8.00"],
        ["two levels", "8.80 (+10.0%)"],
    ]


def test_costs_are_multiples_of_the_transformers(found: dict[str, Any]) -> None:
    assert cells(costs(found)) == [
        ["Model", "32 tokens"],
        ["Transformer", "100 (1.00)"],
        ["two levels", "150 (1.50)"],
        ["Linformer", "too large"],
        ["Model", "32 tokens"],
        ["Transformer", "10 (1.00)"],
        ["two levels", "5 (0.50)"],
        ["Linformer", "too large"],
    ]


def test_panels_show_the_first_seed(found: dict[str, Any]) -> None:
    panels = curves(found)
    assert {title: list(lines) for title, lines in panels.items()} == {
        "kinds, n = 32, k = 8": ["Transformer", "two levels", "Linformer"],
        "kinds, n = 64, k = 8": ["Transformer", "Linformer"],
        "Linformer's k, n = 32": ["Transformer", "Linformer, k = 4", "Linformer, k = 8"],
        "sharing, n = 32, k = 8": ["Transformer", "Linformer, headwise", "Linformer, layerwise"],
        "Linformer's n, k = 8": ["n = 32", "n = 64"],
    }
    assert panels["kinds, n = 32, k = 8"]["Transformer"] == (True, [(50, 20.0), (100, 10.0)])
    assert len(first_seeds(found["trainings"])) == 7


def test_the_report_says_what_is_too_little_to_know(found: dict[str, Any], tmp_path: Path) -> None:
    text = report_text(found, {"a picture": "curves.png"}, tmp_path)
    assert "Seeds 1, 2 for the models whose deviation is given, one for the others" in text
    assert "(4,321 tokens of 60 subwords)" in text
    assert re.search(r"\| 32 +\| +8 \| +90.0% \| +80.0% \| +4.0 \| +7.5 \|", text)
    found["trainings"] = [row for row in found["trainings"] if row["seed"] == 1]
    assert "One seed (1) for every model" in report_text(found, {}, tmp_path)
