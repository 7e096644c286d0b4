"""The command reports the spectra of a model, or refuses in one sentence."""

import json
import shutil
from argparse import ArgumentParser
from pathlib import Path

import pytest
import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass

from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.config import LinformerConfig
from linformer_fairseq.spectrum.arguments import parse
from linformer_fairseq.spectrum.run import run as spectrum
from tests.fairseq_commands import Result, run_module, train_masked

pytestmark = pytest.mark.slow


def run_spectrum(*arguments: object) -> Result:
    return run_module("linformer_fairseq.spectrum", *arguments)


def test_report_of_a_transformer(trained_transformer: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "folder"
    said = run_spectrum(trained_transformer, data / "bin", "--out", out, "--lengths", "20,8", "--rank", 3).ok()
    assert {path.name for path in out.iterdir()} == {"report.md", "results.json", "spectrum.png"}
    results = json.loads((out / "results.json").read_text())
    lengths = [len(line.split()) + 1 for line in (data / "valid.en").read_text().splitlines()]
    counts = [sum(low <= n <= high for n in lengths) for low, high in ((1, 8), (9, 20), (21, 99))]
    for place in ("encoder", "cross", "decoder"):
        found = [row for row in results["spectra"] if row["place"] == place]
        assert [(row["shortest"], row["longest"], row["sentences"]) for row in found] == [
            (1, 8, counts[0]),
            (9, 20, counts[1]),
            (21, None, counts[2]),
        ]
        for row in found:
            curve = torch.tensor(row["cumulative"])
            assert (curve.diff(dim=-1) >= -1e-4).all()
            assert curve[..., -1].eq(1).all()
            ranks = torch.tensor(row["mean_rank"])
            assert (ranks >= 1).all()
            assert (ranks <= row["mean_length"] + 0.01).all()
        assert len(results["suggested_k"][place]) == len(found[0]["mean_rank"])
    ks = {place: ",".join(map(str, k)) for place, k in results["suggested_k"].items()}
    flags = (
        f"--linformer-attention encoder,cross,decoder --linformer-k {ks['encoder']} --linformer-cross-k {ks['cross']} "
        f"--linformer-decoder-k {ks['decoder']}"
    )
    parser = ArgumentParser()
    gen_parser_from_dataclass(parser, LinformerConfig())
    LinformerConfig.from_namespace(parser.parse_args(flags.split()))  # which no flag of is refused
    report = (out / "report.md").read_text()
    assert flags in report
    assert flags in said


def test_report_of_a_linformer(trained: Path, data: Path, tmp_path: Path) -> None:
    """No suggested k exceeds the model's k = 8, and the report covers a sample of the sentences."""
    run_spectrum(trained, data / "bin", "--out", tmp_path, "--sentences", 7, "--energy", 0.999).ok()
    results = json.loads((tmp_path / "results.json").read_text())
    assert sum(row["sentences"] for row in results["spectra"] if row["place"] == "cross") == 7
    assert max(results["suggested_k"]["encoder"] + results["suggested_k"]["cross"]) <= 8


def test_report_of_masked_language_models(trained_roberta: Path, text: Path, tmp_path: Path) -> None:
    """Of fairseq's, whose lines have a beginning and an end, and of one with three slots that reads longer blocks."""
    said = run_spectrum(trained_roberta, text, "--out", tmp_path / "full", "--lengths", "12").ok()
    results = json.loads((tmp_path / "full/results.json").read_text())
    lengths = [len(line.split()) + 2 for line in (text.parent / "valid.txt").read_text().splitlines()]
    short = sum(length <= 12 for length in lengths)
    assert [(row["place"], row["sentences"]) for row in results["spectra"]] == [
        ("encoder", short),
        ("encoder", 30 - short),
    ]
    (ks,) = results["suggested_k"].values()
    flags = f"--linformer-k {','.join(map(str, ks))}"
    assert len(ks) == 2
    assert said.strip().endswith(f"It suggests {flags}")
    assert f"    {flags}\n" in (tmp_path / "full/report.md").read_text()

    blocks = ["--sample-break-mode", "none", "--tokens-per-sample", 130, "--max-tokens", 260]
    slots = ["--linformer-projection", "linear", "--linformer-k", 3]
    train_masked(text, tmp_path / "blocks", *blocks, *slots, "--max-epoch", 1, arch="linformer_roberta").ok()
    run_spectrum(tmp_path / "blocks/checkpoint_last.pt", text, "--out", tmp_path / "slots", "--energy", 0.999).ok()
    results = json.loads((tmp_path / "slots/results.json").read_text())
    assert results["spectra"][-1]["shortest"] == 129
    assert max(results["suggested_k"]["encoder"]) <= 3


def test_refusals(trained: Path, data: Path, tmp_path: Path) -> None:
    out = ("--out", tmp_path / "out")
    broken = tmp_path / "broken.pt"
    broken.write_bytes(b"nothing")
    other = tmp_path / "other"
    shutil.copytree(data / "bin", other)
    for language in ("en", "de"):
        with (other / f"dict.{language}.txt").open("a") as dictionary:
            dictionary.write("another 1\n")
    result = run_spectrum(trained, tmp_path / "none", *out)
    assert "has no dictionaries: name the folder that fairseq-preprocess wrote" in result.sentence()
    assert result.status == 2
    refused = [
        ((tmp_path / "none.pt", data / "bin", *out), "is missing: name a checkpoint"),
        ((trained, other, *out), "does not fit the dictionaries in"),
        ((trained, data / "bin", *out, "--subset", "nowhere"), "name another --subset"),
        ((trained, data / "bin", "--out", broken), "is a file: name a folder"),
    ]
    if hasattr(torch.serialization, "add_safe_globals"):
        refused.append(((broken, data / "bin", *out), "is not a checkpoint, or is damaged"))
    for arguments, said in refused:
        with pytest.raises(UserError, match=said):
            spectrum(parse([*map(str, arguments), "--threads", "1"]))
    assert not (tmp_path / "out").exists()
