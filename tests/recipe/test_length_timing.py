"""What is timed against sentence length, and how it is told."""

from pathlib import Path
from typing import Any

import pytest
import torch

from linformer_fairseq.cli.files import read_json
from linformer_fairseq.recipe import length_timing, plots
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.length_timing import ENCODER, FILE_NAME, TRAINING, WHOLE, Lengths, measure_lengths
from linformer_fairseq.recipe.settings import Model, Settings

MODELS = [Model(), Model(2, "encoder,cross", "two-level")]
TINY = ["--layers", "1", "--dim", "8", "--heads", "2", "--ffn-dim", "8", "--threads", "1", "--exact-below", "0"]


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An output folder with a vocabulary."""
    (tmp_path / "bin").mkdir()
    for lang in ("en", "de"):
        (tmp_path / "bin" / f"dict.{lang}.txt").write_text("a 1\nb 1\n")
    return tmp_path


def test_every_model_at_every_length_once(out: Path) -> None:
    """A study that was stopped goes on, and one that asks for something else begins again."""
    settings = parse(TINY).settings
    measure_lengths(Lengths(16, [4], 1), MODELS, settings, out, threads=1)
    wanted = Lengths(16, [4, 8, 32], 2)
    measure_lengths(wanted, MODELS, settings, out, threads=1)
    found = read_json(out / FILE_NAME)
    assert [(row["model"], row["part"], row["length"], row["sentences"]) for row in found["rows"]] == [
        (model.name, part, length, 16 // length) for length in (4, 8) for part in (ENCODER, WHOLE) for model in MODELS
    ]
    assert all(row["seconds"] > 0 and not row["note"] for row in found["rows"])

    written = (out / FILE_NAME).stat().st_mtime_ns
    measure_lengths(wanted, MODELS, settings, out, threads=1)
    assert (out / FILE_NAME).stat().st_mtime_ns == written

    plots.lengths(found["rows"], out / "lengths.png")
    assert (out / "lengths.png").exists()


def test_untrained_models_are_those_of_long_texts(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each kind, in all attention and with the exact length that the attention has by default."""
    exact: dict[str, Any] = {}

    def seen(model: Model, settings: Settings, *others: Any) -> Any:
        exact[model.name] = settings.training.exact_below
        return build(model, settings, *others)

    build = length_timing._build
    monkeypatch.setattr(length_timing, "_build", seen)
    measure_lengths(Lengths(8, [8], 1, [2, 4]), [*MODELS, Model(4, "encoder", "linear")], parse(TINY).settings, out, 1)
    untrained = [f"{kind} k={k} (encoder,cross,decoder)" for kind in ("Two levels", "Linformer") for k in (2, 4)]
    assert read_json(out / FILE_NAME)["asked"]["untrained"] == untrained
    trained = ["Transformer", "Two levels k=2 (encoder,cross)", "Linformer k=4 (encoder)"]
    assert exact == {**dict.fromkeys(trained, 0), **dict.fromkeys(untrained)}
    assert [row["model"] for row in read_json(out / FILE_NAME)["rows"] if row["part"] == WHOLE] == trained + untrained


def test_training_steps_train(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They change the weights, each model its own; the models of inference stay as they are."""
    models: list[tuple[Any, dict[str, torch.Tensor]]] = []

    def seen(*arguments: Any) -> Any:
        built = build(*arguments)
        models.append((built[0], {name: weight.clone() for name, weight in built[0].state_dict().items()}))
        return built

    build = length_timing._build
    monkeypatch.setattr(length_timing, "_build", seen)
    measure_lengths(Lengths(16, [4, 8], 2, training=True), MODELS, parse(TINY).settings, out, threads=1)
    changed = [
        any(not weight.equal(before[name]) for name, weight in net.state_dict().items()) for net, before in models
    ]
    assert changed == [False, True] * len(MODELS)
    rows = read_json(out / FILE_NAME)["rows"]
    assert list(dict.fromkeys(row["part"] for row in rows)) == [ENCODER, WHOLE, TRAINING]
    assert all(row["seconds"] > 0 and not row["note"] for row in rows)
    plots.lengths(rows, out / "lengths.png")
