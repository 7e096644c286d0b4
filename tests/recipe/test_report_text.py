"""The report's tables hold the figures that they name, in their units."""

from pathlib import Path

import pytest

from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.logs import TrainingLog
from linformer_fairseq.recipe.report_text import report_text
from linformer_fairseq.recipe.rows import Row, make_row
from linformer_fairseq.recipe.settings import Model

FACTS = {
    "server": "file:///mirror",
    "train": 5000,
    "valid": 30,
    "test": 3003,
    "dropped": {"an empty side": 1200},
    "source_mean": 29.5,
    "source_max": 251,
}
LENGTHS = {
    "asked": {
        "tokens": 512,
        "repeats": 3,
        "models": ["Transformer", "Linformer k=8 (cross; conv)"],
        "precision": "fp16",
        "machine": "a machine",
        "threads": 1,
    },
    "rows": [
        {"model": model, "part": part, "length": length, "sentences": 512 // length, "seconds": seconds, "note": note}
        for model, part, length, seconds, note in (
            ("Transformer", "encoder", 256, 0.1, ""),
            ("Linformer k=8 (cross; conv)", "encoder", 256, 0.2, ""),
            ("Transformer", "encoder", 512, None, "out of memory"),
            ("Linformer k=8 (cross; conv)", "encoder", 512, 0.3, ""),
            ("Transformer", "encoder and decoder", 256, 0.5, ""),
        )
    ],
}


def row(model: Model, against: dict[str, float] | None = None, jobs: int = 1, first_epoch: int = 1) -> Row:
    """60 updates of 1,000 tokens in 30 s, then 40 of 500 in 20 s."""
    epochs = {
        first_epoch: {"train_train_wall": 30.0, "train_num_updates": 60.0, "train_wpb": 1000.0},
        first_epoch + 1: {"train_train_wall": 20.0, "train_num_updates": 100.0, "train_wpb": 500.0},
    }
    scores = {
        "perplexity": 5.678,
        "bleu": 27.34,
        "signature": "S",
        "chrf": 56.78,
        "chrf_signature": "C",
        "compound_bleu": 28.45,
        "compound_signature": "B",
        "seconds": 1234.56,
        "sentences_per_second": 2.432,
        "tokens_per_second": 1357.9,
        "precision": "fp16",
        "threads": 1,
        "machine": "that one",
    }
    training = {
        "jobs": jobs,
        "processes": 4,
        "precision": "bf16",
        "threads": 2,
        "machine": "this one",
        "command": ["fairseq-train", "my data", "--arch", model.slug],
    }
    return make_row(model, TrainingLog(12_345_678, {100: {"valid_ppl": 6.0}}, epochs), scores, training, against)


@pytest.fixture
def report(tmp_path: Path) -> str:
    flags = ["--wmt14", "newstest2013", "--out", str(tmp_path), "--updates", "100"]
    against = {"difference": -1.234, "low": -2.345, "high": 0.123, "p_value": 0.0456}
    rows = [row(Model()), row(Model(8, "cross", "conv"), against, jobs=2, first_epoch=2)]
    return report_text(parse(flags).settings, rows, FACTS, LENGTHS, {"A picture": "a.png"})


def table(report: str, title: str) -> list[list[str]]:
    """The cells of the first table below a title, without its rule."""
    lines = report[report.index(title) :].split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end])
    return [header, *rows]


def test_model_performance(report: str) -> None:
    header, transformer, linformer = table(report, "## Model performance")
    assert header[:5] == ["Model", "PPL (dev)", "BLEU", "against the Transformer", "p (one seed)"]
    assert header[5:] == ["BLEU (compound-split)", "chrF", "Parameters"]
    assert transformer == ["Transformer", "5.68", "27.34", "–", "–", "28.45", "56.78", "12,345,678"]
    assert linformer[:5] == ["Linformer k=8 (cross; conv)", "5.68", "27.34", "-1.23 [-2.35, +0.12]", "0.046"]
    assert "(`S`, `B`, `C`)" in report
    assert "the one with the lowest validation loss" in report
    assert "all 3,003 test sentences" in report
    assert "(left out: 1,200 with an empty side)" in report
    assert "A bootstrap over sentences knows nothing of seeds" in report


def test_training_time(report: str) -> None:
    """The second model's first epoch is not in its log, so nobody knows how long it was trained."""
    header, transformer, linformer = table(report, "## Training time")
    assert header[1:5] == ["Seconds", "Updates", "Milliseconds an update", "Tokens a second"]
    assert header[5:] == ["Processes", "Precision"]
    assert transformer == ["Transformer", "50", "100", "500", "1,600", "4", "bf16"]
    assert linformer == ["Linformer k=8 (cross; conv)", "–", "100", "–", "–", "4", "bf16"]
    assert "has lost the time of an epoch (Linformer k=8 (cross; conv))" in report
    assert "Up to 2 trainings ran at a time and shared the machine (Linformer k=8 (cross; conv))" in report


def test_inference_time(report: str) -> None:
    header, transformer, _ = table(report, "## Inference time")
    assert header == ["Model", "Seconds", "Sentences a second", "Tokens a second", "Precision"]
    assert transformer == ["Transformer", "1,234.6", "2.43", "1,358", "fp16"]


def test_time_against_length(report: str) -> None:
    header, *rows = table(report, "*Encoder*")
    assert header == ["Tokens / sentences", "Transformer", "Linformer k=8 (cross; conv)"]
    assert rows == [["256 / 2", "0.100", "0.200"], ["512 / 1", "out of memory", "0.300"]]
    assert table(report, "*Encoder and decoder*")[1:] == [["256 / 2", "0.500", "–"]]
    assert "over 512 source tokens" in report


def test_published_figures(report: str) -> None:
    header, *rows = table(report, "## Published by the study")
    assert [name for name in header if "not comparable" in name] == [header[1], header[3]]
    assert rows == [
        ["Transformer", "29.92", "18.68", "0.221"],
        ["Linformer k=32", "30.08", "14.15", "0.205"],
        ["Linformer k=64", "27.74", "15.18", "0.209"],
    ]


def test_machines_and_commands(report: str) -> None:
    assert table(report, "## Machines")[:2] == [
        ["Model", "Trained on", "Threads of each process", "Translated on", "Threads"],
        ["Transformer", "this one", "2", "that one", "1"],
    ]
    assert "```\nfairseq-train 'my data' --arch transformer\n```" in report
    assert "![A picture](a.png)" in report
