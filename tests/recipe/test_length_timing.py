"""What is timed against sentence length, and how it is told."""

from pathlib import Path

from linformer_fairseq.cli.files import read_json
from linformer_fairseq.recipe import plots
from linformer_fairseq.recipe.arguments import parse
from linformer_fairseq.recipe.length_timing import ENCODER, FILE_NAME, WHOLE, Lengths, measure_lengths
from linformer_fairseq.recipe.settings import Model

MODELS = [Model(), Model(2, "encoder,cross")]


def test_every_model_at_every_length_once(tmp_path: Path) -> None:
    """A study that was stopped goes on, and one that asks for something else begins again."""
    settings = parse(["--layers", "1", "--dim", "8", "--heads", "2", "--ffn-dim", "8", "--threads", "1"]).settings
    (tmp_path / "bin").mkdir()
    for lang in ("en", "de"):
        (tmp_path / "bin" / f"dict.{lang}.txt").write_text("a 1\nb 1\n")
    measure_lengths(Lengths(16, [4], 1), MODELS, settings, tmp_path, threads=1)
    wanted = Lengths(16, [4, 8, 32], 2)
    measure_lengths(wanted, MODELS, settings, tmp_path, threads=1)
    found = read_json(tmp_path / FILE_NAME)
    assert [(row["model"], row["part"], row["length"], row["sentences"]) for row in found["rows"]] == [
        (model.name, part, length, 16 // length) for length in (4, 8) for part in (ENCODER, WHOLE) for model in MODELS
    ]
    assert all(row["seconds"] > 0 and not row["note"] for row in found["rows"])

    written = (tmp_path / FILE_NAME).stat().st_mtime_ns
    measure_lengths(wanted, MODELS, settings, tmp_path, threads=1)
    assert (tmp_path / FILE_NAME).stat().st_mtime_ns == written

    plots.lengths(found["rows"], tmp_path / "lengths.png")
    assert (tmp_path / "lengths.png").exists()
