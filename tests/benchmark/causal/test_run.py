"""The command from end to end, and that a wrong contender is noticed."""

import json
import shlex
from pathlib import Path

import pytest
import torch

from linformer_fairseq.benchmark.__main__ import main
from linformer_fairseq.benchmark.causal import checks
from linformer_fairseq.benchmark.causal.models import LINFORMERS, TRANSFORMER, build_models
from linformer_fairseq.benchmark.causal.models import OURS as MODELS
from linformer_fairseq.benchmark.causal.product import EAGER, EAGER_MODULE, FUSED_MODULE, OURS
from linformer_fairseq.benchmark.causal.settings import CausalSettings
from linformer_fairseq.cli.errors import UserError

TINY = shlex.split(
    "--dim 16 --heads 2 --layers 1 --ffn-dim 16 --k 4 --words 20 --sentences 2 --source-length 5 --positions 64,8 "
    "--lengths 16,512 --eager-limit 16 --chunk-sizes 8,64 --repeats 2 --warm-up 1"
)
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark") / "new" / "folder"
    assert main(["causal", "--out", str(folder), "--threads", str(torch.get_num_threads()), *TINY]) == 0
    return folder


def test_only_the_four_files_are_left(out: Path) -> None:
    assert {path.name for path in out.iterdir()} == {"report.md", "results.json", "decoding.png", "training.png"}
    assert all(path.stat().st_size for path in out.iterdir())


def test_all_rows_are_there(out: Path) -> None:
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    decoded = {(row["model"], row["beam"], row["position"]) for row in results["decoding"]}
    assert decoded == {(m, b, p) for m in (TRANSFORMER, *MODELS) for b in (1, 4) for p in (8, 64)}
    assert all(row["time"]["median_seconds"] > 0 and row["state_bytes"] > 0 for row in results["decoding"])
    grown = [(row["model"], row["beam"], row["position"]) for row in results["growth"]]
    assert grown == [(m, b, p) for m in MODELS for b in (1, 4) for p in (8, 64)]
    assert {(row["contender"], row["length"]) for row in results["training"]} == {
        (c, n) for c in OURS for n in (16, 512)
    }
    for row in results["training"]:
        left_out = row["length"] == 512 and row["contender"] in (EAGER, FUSED_MODULE, EAGER_MODULE)
        assert (row["time"] is None) == (row["peak_bytes"] is None) == bool(row["note"]) == left_out
    assert {(row["chunk_size"], row["length"]) for row in results["chunks"]} == {
        (c, n) for c in (8, 64) for n in (16, 512)
    }


def test_state_of_the_linformers_does_not_grow(out: Path) -> None:
    results = json.loads((out / "results.json").read_text(encoding="utf-8"))
    sizes = {(row["model"], row["beam"], row["position"]): row["self_state_bytes"] for row in results["decoding"]}
    for beam in (1, 4):
        assert sizes[TRANSFORMER, beam, 64] == 8 * sizes[TRANSFORMER, beam, 8]
        for model in LINFORMERS:
            assert sizes[model, beam, 64] == sizes[model, beam, 8]


def test_report(out: Path) -> None:
    report = (out / "report.md").read_text(encoding="utf-8")
    assert "python -m linformer_fairseq.benchmark causal --out" in report
    assert "left out: longer than --eager-limit" in report
    assert [line.split("|")[1:3] for line in report.split("\n") if "(default)" in line] == [
        [" 64 (default) ", f"{length:>9} "] for length in (16, 512)
    ]


def test_wrong_product_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    checks.check_product(2, 4, 3, (7, 64), CPU)
    right = checks.causal_attention

    def wrong(query: torch.Tensor, *rest: torch.Tensor, **options: int) -> tuple:
        return right(1.001 * query, *rest, **options)

    monkeypatch.setattr(checks, "causal_attention", wrong)
    with pytest.raises(UserError, match="chunks of 7"):
        checks.check_product(2, 4, 3, (7, 64), CPU)


@pytest.mark.parametrize("name", LINFORMERS)
def test_wrong_decoding_is_noticed(name: str, settings: CausalSettings) -> None:
    model = build_models(settings, target_positions=checks.TARGET_LENGTH)[name]
    checks.check_decoding(name, model, CPU)
    for layer in model.decoder.layers:
        attention = layer.self_attn  # every step forgets its position
        attention._state = lambda *args, right=attention._state: (0, *right(*args)[1:])
    with pytest.raises(UserError, match="differs from the parallel pass"):
        checks.check_decoding(name, model, CPU)
