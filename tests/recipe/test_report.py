"""The report of an output folder: its tables hold the figures that they name, and a fact that is missing is a dash."""

import json
from pathlib import Path
from typing import Any

import pytest

from linformer_fairseq.cli.files import read_json, write_json
from linformer_fairseq.recipe import length_timing, report_text, sources, subwords, texts
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.report import write_report
from linformer_fairseq.recipe.settings import Model

SCORES = {
    "bleu": 27.34,
    "signature": "S",
    "chrf": 56.78,
    "chrf_signature": "C",
    "compound_bleu": 28.45,
    "compound_signature": "B",
    "perplexity": 5.678,
    "seconds": 1234.56,
    "sentences_per_second": 2.432,
    "tokens_per_second": 1357.9,
    "checkpoints": ["checkpoint_best.pt"],
    "precision": "fp16",
    "threads": 1,
    "machine": "that one",
}
TRAINING = {
    "jobs": 1,
    "processes": 4,
    "precision": "bf16",
    "threads": 2,
    "machine": "this one",
    "command": ["fairseq-train", "my data"],
}
MODELS = (Model(), Model(8, "cross", "conv"))
NAMES = [model.name for model in MODELS]
LINES = ["Ein Hund läuft heute weg.", "Zwei Hunde laufen sehr weit weg."]
LENGTHS = {
    "asked": {"tokens": 512, "repeats": 3, "models": NAMES, "precision": "fp16", "machine": "a machine", "threads": 1},
    "rows": [
        {
            **{"model": model, "part": part, "length": length, "sentences": 512 // length, "seconds": seconds},
            **{"quartiles": seconds and [0.9 * seconds, 1.1 * seconds], "note": note},
        }
        for model, part, length, seconds, note in (
            (NAMES[0], "encoder", 256, 0.1, ""),
            (NAMES[1], "encoder", 256, 0.2, ""),
            (NAMES[0], "encoder", 512, None, "out of memory"),
            (NAMES[1], "encoder", 512, 0.3, ""),
            (NAMES[0], "encoder and decoder", 256, 0.5, ""),
        )
    ],
}


def log(first_epoch: int) -> str:
    """60 updates of 1,000 tokens in 30 s, then 40 of 500 in 20 s."""
    entries = (
        ("valid", {"valid_num_updates": "100", "valid_ppl": "6.5"}),
        ("train", {"epoch": first_epoch, "train_train_wall": 30, "train_num_updates": 60, "train_wpb": 1000}),
        ("train", {"epoch": first_epoch + 1, "train_train_wall": 20, "train_num_updates": 100, "train_wpb": 500}),
    )
    return "num. shared model params: 12,345,678\n" + "".join(f"| {kind} | {json.dumps(e)}\n" for kind, e in entries)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A folder with two finished models; the log of the second one lacks its first epoch."""
    for folder in ("raw", "bpe"):
        (tmp_path / folder).mkdir()
    for lang in ("en", "de"):
        texts.write_lines(tmp_path / "raw" / f"test.{lang}", LINES)
    write_json(tmp_path / "raw" / sources.FACTS, {"dropped": {"an empty side": 1200}, "server": "file:///mirror"})
    counted = {split: {"pairs": 3003, "source_subwords": 9, "source_max": 6} for split in texts.SPLITS}
    write_json(tmp_path / "bpe" / subwords.FACTS, {"dropped": {}, **counted})
    write_json(tmp_path / length_timing.FILE_NAME, LENGTHS)
    for model, hypotheses, first_epoch, jobs in zip(MODELS, (LINES, LINES[::-1]), (1, 2), (1, 2), strict=True):
        folder = tmp_path / "models" / model.slug
        (folder / "test").mkdir(parents=True)
        (folder / "train.log").write_text(log(first_epoch))
        identity = {"k": model.k, "attention": model.attention, "projection": model.projection}
        write_json(folder / "train.json", {**identity, **TRAINING, "jobs": jobs})
        write_json(folder / "test" / "scores.json", SCORES)
        texts.write_lines(folder / "test" / "hypotheses.txt", hypotheses)
    return tmp_path


def reported(out: Path) -> tuple[str, str, list[dict[str, Any]]]:
    """The report as text, as a page, and its models in results.json."""
    flags = ["--wmt14", "newstest2013", "--server", "file:///mirror", "--out", str(out), "--updates", "100"]
    write_report(parse(flags).settings, out)
    text, page = ((out / f"report.{ending}").read_text(encoding="utf-8") for ending in ("md", "html"))
    return text, page, read_json(out / "results.json")["models"]


def table(report: str, title: str) -> list[list[str]]:
    """The cells of the first table below a title, without its rule."""
    lines = report[report.index(title) :].split("\n")
    start = next(i for i, line in enumerate(lines) if line.startswith("|"))
    end = next(i for i in range(start, len(lines)) if not lines[i].startswith("|"))
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:end])
    return [header, *rows]


def test_every_table_holds_what_it_names(out: Path) -> None:
    report, _, (transformer, linformer) = reported(out)
    assert transformer["bleu_against_transformer"] is None
    found = linformer["bleu_against_transformer"]
    assert found["difference"] < 0
    header, *rows = table(report, "## Model performance")
    assert header[:5] == ["Model", "PPL (dev)", "BLEU", "against the Transformer", "p (one seed)"]
    assert header[5:] == ["BLEU (compound-split)", "chrF", "Parameters"]
    assert rows[0] == [NAMES[0], "5.68", "27.34", "–", "–", "28.45", "56.78", "12,345,678"]
    difference = f"{found['difference']:+.2f} [{found['low']:+.2f}, {found['high']:+.2f}]"
    assert rows[1] == [NAMES[1], *rows[0][1:3], difference, f"{found['p_value']:.3f}", *rows[0][5:]]
    assert table(report, "## Training time") == [
        ["Model", "Seconds", "Updates", "Milliseconds per update", "Tokens per second", "Processes", "Precision"],
        [NAMES[0], "50", "100", "500", "1,600", "4", "bf16"],
        [NAMES[1], "–", "100", "–", "–", "4", "bf16"],  # nobody knows how long
    ]
    assert table(report, "## Inference time")[:2] == [
        ["Model", "Seconds", "Sentences per second", "Tokens per second", "Precision"],
        [NAMES[0], "1,234.6", "2.43", "1,358", "fp16"],
    ]
    assert table(report, "## Time against sentence length") == [
        ["Faster than the Transformer", "encoder", "encoder and decoder"],
        [NAMES[1], "from 512 tokens on", "–"],  # nobody knows without the whole model's time
    ]
    header, *rows = table(report, "*Encoder*")
    assert header == ["Tokens / sentences", *NAMES]
    assert rows == [["256 / 2", "0.100", "0.200"], ["512 / 1", "out of memory", "0.300"]]
    assert table(report, "*Encoder and decoder*")[1:] == [["256 / 2", "0.500", "–"]]
    header, *rows = table(report, "## Published by the study")
    assert [name for name in header if "not comparable" in name] == [header[1], header[3]]
    assert rows[1] == ["Linformer k=32", "30.08", "14.15", "0.205"]
    assert table(report, "## Machines")[:2] == [
        ["Model", "Trained on", "Threads of each process", "Translated on", "Threads"],
        [NAMES[0], "this one", "2", "that one", "1"],
    ]
    for said in (
        "(`S`, `B`, `C`)",
        "the one with the lowest validation loss",
        "all 3,003 test sentences",
        "(left out: 1,200 with an empty side)",
        "A bootstrap over sentences knows nothing of seeds",
        f"has lost the time of an epoch ({NAMES[1]})",
        f"Up to 2 trainings ran at a time and shared the machine ({NAMES[1]})",
        "over 512 source tokens",
        "```\nfairseq-train 'my data'\n```",
        "](lengths.png)",
    ):
        assert said in report, said


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ([0.5, 0.5, 0.5], "from 1 tokens on"),
        ([2.0, 0.5, 0.5], "from 2 tokens on"),
        ([0.5, 2.0, 0.5], "from 4 tokens on"),
        ([2.0, 0.5, 2.0], "not up to 4 tokens"),
        ([0.9, 0.9, 0.9], "not up to 4 tokens"),  # the quartiles overlap
        ([2.0, 0.5, None], "not up to 4 tokens"),
    ],
)
def test_from_which_length_a_model_is_faster(times: list[float | None], said: str) -> None:
    """From the first length on after which it is never as slow as the Transformer again."""
    rows = [
        {"model": name, "part": "encoder", "length": length, "seconds": seconds, "note": "", "sentences": 4 // length}
        for name, every in zip(NAMES, ([1.0] * 3, times), strict=True)
        for length, seconds in zip((1, 2, 4), every, strict=True)
    ]
    for row in rows:
        row["quartiles"] = row["seconds"] and [0.9 * row["seconds"], 1.1 * row["seconds"]]
        row["note"] = "" if row["seconds"] else "out of memory"
    text = "\n\n".join(report_text._lengths({"asked": {**LENGTHS["asked"], "models": NAMES}, "rows": rows}))
    assert table(text, "## Time against")[1] == [NAMES[1], said]
    alone = {"asked": {**LENGTHS["asked"], "models": NAMES[1:]}, "rows": rows[3:]}
    assert "Faster than" not in "".join(report_text._lengths(alone))


def test_the_report_says_which_models_were_timed_untrained(out: Path) -> None:
    text, _, _ = reported(out)
    assert "not trained" not in text
    assert "training step" not in text
    untrained = Model(4, "encoder", "two-level").name
    asked = {**LENGTHS["asked"], "models": [*NAMES, untrained], "untrained": [untrained], "training": True}
    write_json(out / length_timing.FILE_NAME, {**LENGTHS, "asked": asked})
    text, _, _ = reported(out)
    assert f"{untrained} was not trained" in text
    assert "fewer than 768 tokens in full" in text
    assert "A training step is forward, backward and update" in text


def test_a_fact_that_an_older_recipe_did_not_store_is_a_dash(out: Path) -> None:
    """Any of those that commands store besides what identifies the model."""
    scores = out / "models" / MODELS[0].slug / "test" / "scores.json"
    write_json(scores, {name: value for name, value in SCORES.items() if name != "chrf"})
    text, _, (transformer, linformer) = reported(out)
    assert [row[5:7] for row in table(text, "## Model performance")[1:]] == [["28.45", "–"], ["28.45", "56.78"]]
    assert (transformer["chrf"], linformer["chrf"]) == (None, 56.78)
    for model in MODELS:
        folder = out / "models" / model.slug
        write_json(folder / "test" / "scores.json", {})
        identity = read_json(folder / "train.json")
        write_json(folder / "train.json", {name: identity[name] for name in ("k", "attention", "projection")})
    text, page, models = reported(out)
    assert table(text, "## Inference time")[1] == [NAMES[0], "–", "–", "–", "–"]
    assert table(text, "## Machines")[1] == [NAMES[0], "–", "–", "–", "–"]
    assert page.count(">–</td>") == text.count(" – |")
    assert [model["model"] for model in models] == NAMES
    summary = report_text.summary(MODELS[0], out)
    assert summary.startswith("  Transformer: perplexity – (validation)\n    sacreBLEU – (–)\n")
    for plot in ("perplexity.png", "comparison.png"):
        assert (out / plot).read_bytes().startswith(b"\x89PNG")
