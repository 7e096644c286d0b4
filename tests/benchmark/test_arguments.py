"""The command line: what it takes, and what it refuses in one sentence."""

import dataclasses
import shlex

import pytest
import torch

from linformer_fairseq.benchmark.__main__ import main
from linformer_fairseq.benchmark.arguments import parse
from linformer_fairseq.benchmark.efficiency.settings import PARTS, SMOKE, EfficiencySettings
from linformer_fairseq.benchmark.run_options import RunOptions


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ("", "BENCHMARK"),
        ("quadratic --out x", "quadratic"),
        ("causal", "--out"),
        ("causal --out x --positions 64,0", "'0' is not a whole number from 1 on"),
        ("causal --out x --repeats many", "'many' is not a whole number from 1 on"),
        ("causal --out x --dim 2 --heads 1", "use 4 or more"),
        ("causal --out x --dtype int8", "int8"),
        ("causal --out x --device cuda", "use --device cpu"),
        ("efficiency --out x --smoke --dim 10", "--dim 10 is not divisible by --heads 4"),
        ("efficiency --out x --smok", "--smok"),
        ("efficiency --out x --parts sizes,speed", f"'speed' is not one of {', '.join(PARTS)}"),
        ("efficiency --out x --time-limit soon", "'soon' is not a number of seconds"),
        ("efficiency --out x --slow -1", "'-1' is not a number of seconds"),
        (f"efficiency --out {__file__}", "name a folder"),
    ],
)
def test_wrong_options_end_in_one_sentence(
    options: str, wanted: str, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(shlex.split(options)) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert wanted in captured.err


def test_options_after_smoke_count() -> None:
    parsed = parse(shlex.split("efficiency --out x --dim 64 --repeats 9 --smoke --heads 2 --warm-up 0"))
    assert (parsed.settings.dim, parsed.options.repeats) == (SMOKE["dim"], SMOKE["repeats"])
    assert (parsed.settings.heads, parsed.options.warm_up) == (2, 0)
    fields = {field.name for kind in (EfficiencySettings, RunOptions) for field in dataclasses.fields(kind)}
    assert set(SMOKE) <= fields


def test_parts_are_in_the_order_of_the_report() -> None:
    parts = parse(shlex.split("efficiency --out x --parts training,modules,training")).settings.parts
    assert parts == ("modules", "training")
    assert parse(shlex.split("efficiency --out x")).settings == EfficiencySettings()
