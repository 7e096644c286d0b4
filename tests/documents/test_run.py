"""The study of documents from end to end, in a tiny size: killed, gone on with, reported."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fairseq.sequence_generator import SequenceGenerator

from linformer_fairseq import trained
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.documents import glossary
from linformer_fairseq.documents.arguments import checkpoint_of, parse
from linformer_fairseq.documents.costs import load_for_training, search
from linformer_fairseq.documents.merge import OWN
from linformer_fairseq.documents.report import write_report
from linformer_fairseq.documents.run import run
from tests.fairseq_commands import ROOT
from tests.variants import reads_checkpoints

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, reads_checkpoints]
SIZES = (
    "--bpe-merges 150 --layers 1 --dim 16 --heads 2 --ffn-dim 16 --max-tokens 256 --start-updates 3 --updates 3 "
    "--validate-updates 1 --average 1 --keep-checkpoints 2 --beam 2 --max-subwords 256 --lengths 128,256,512 --k 4 "
    "--resolutions 1,2 --seeds 2 --cost-repeats 1 --glossary 2"
)
ARMS = "transformer,two-level-all,sentences,converted"
TIMED = ("transformer", "two-level-all")
WORDS = {"en": ("a", "man", "dog", "sees", "waits"), "de": ("ein", "Mann", "Hund", "sieht", "wartet")}


def text(lang: str, documents: int) -> str:
    """Documents of two to six sentences of three words."""
    words = WORDS[lang]
    return "\n\n".join(
        "\n".join(" ".join(words[(i * j + m * m) % 5] for m in range(3)) for j in range(2 + i % 5))
        for i in range(documents)
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("documents")
    for split, documents in {"train": 20, "valid": 3, "test": 5}.items():
        for lang in WORDS:
            (folder / f"{split}.{lang}").write_text(text(lang, documents), encoding="utf-8")
    return folder


def arguments(folder: Path, out: Path, *more: str) -> list[str]:
    return ["--data", str(folder), "--out", str(out), *SIZES.split(), *more]


@pytest.fixture(scope="module")
def finished(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a study that had decided on the validation set before it went on with more models."""
    out = tmp_path_factory.mktemp("study") / "out"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(glossary, "TESTED_SIZE", 4)
        patched.setattr(glossary, "SIZES", (4,))
        patched.setattr(glossary, "RARELY_MENTIONING", 0.9)
        run(parse(arguments(folder, out, "--arms", "transformer", "--no-test")))
        (out / "first-costs.json").write_text((out / "costs.json").read_text())
        assert {path.name for path in out.glob("runs/*/*/models/*/translations/*")} == {"valid-256-forced"}
        run(parse(arguments(folder, out, "--arms", ARMS, "--jobs", "2")))
    return out


def test_every_model_translates_every_set(finished: Path) -> None:
    found = json.loads((finished / "results.json").read_text())
    ways = {(row["arm"], row["set"], row["longest"], row["mode"]) for row in found["rows"]}
    lengths = [("valid", 256), ("test", 128), ("test", 256), ("long", 256), ("long", 512), ("glossary", 256)]
    trained = {(arm, *way, "forced") for arm in (*TIMED, "converted") for way in lengths}
    trained |= {(arm, "test", 256, "free") for arm in (*TIMED, "converted")}
    by_sentence = {("sentences", name, length, "forced") for name, length in dict(lengths).items()}
    assert ways == trained | by_sentence
    for row in found["rows"]:
        if row["mode"] == "forced":
            assert row["s_bleu"] is not None
    assert found["documents"] == {"valid": 3, "test": 5, "long": 1, "glossary": 2}
    differences = {(row["arm"], row["set"], row["longest"], row["mode"]) for row in found["differences"]}
    # sentence by sentence all lengths are one
    assert differences == {way for way in trained if way[0] != "transformer"} | {
        ("sentences", *way, "forced") for way in lengths
    }
    for row in found["differences"]:
        assert bool(row.get("glossary")) == (row["set"] == "glossary")


def test_time_and_memory_are_measured_once_beside_the_transformers(finished: Path) -> None:
    """The Transformer's were measured before there were other models."""
    rows = json.loads((finished / "results.json").read_text())["costs"]["rows"]
    assert [(row["part"], row["length"], row["arm"]) for row in rows] == [
        (part, length, arm)
        for length in (128, 256, 512)
        for part in ("training", "translation")
        for arm in (*TIMED, "fused")
    ]
    for row in rows:
        amount = "tokens_per_second" if row["part"] == "training" else "seconds"
        assert row[amount] > 0
        assert row["base"][amount] > 0
        assert row["base"]["arm"] == ("fused" if row["part"] == "training" else "transformer")
        assert row["peak_bytes"] > 0
    first = json.loads((finished / "first-costs.json").read_text())["rows"]
    assert first == [row for row in rows if row["arm"] in ("transformer", "fused")]
    assert all(row["base"] != own["base"] for row in rows for own in first if row["arm"] in TIMED[1:])


def test_training_steps_compute_no_activations_twice(
    folder: Path, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in the training, whatever is needed to load a model for translation."""
    monkeypatch.setattr(trained, "plain_encoder", lambda: {"checkpoint_activations": True})
    study = parse(arguments(folder, finished, "--arms", "transformer"))
    transformer = study.trainings[0]
    loaded = load_for_training(transformer.variant, checkpoint_of(transformer), 128, study)
    assert not any(hasattr(layer, "precheckpoint_forward") for layer in loaded.model.encoder.layers)


def test_the_start_alone_is_not_timed(folder: Path, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "out", symlinks=True)
    run(parse(arguments(folder, tmp_path / "out", "--arms", "sentences")))
    found = json.loads((tmp_path / "out" / "results.json").read_text())
    assert set(found["arms"]) == {"sentences"}


def test_documents_are_translated_as_the_results_say(finished: Path) -> None:
    for path in finished.glob("runs/*/*/models/*/translations/*-*-*/translation.json"):
        if path.parent.name.endswith("by-sentence"):
            continue
        command = json.loads(path.read_text())["command"]
        _, longest, mode = path.parent.name.rsplit("-", 2)
        for flag, value in (("--part-tokens", longest), ("--sentence-count", mode)):
            assert command[command.index(flag) + 1] == value
        assert command[command.index("--path") + 1] == str(path.parents[2] / "chosen.pt")
        arm = path.relative_to(finished / "runs").parts[0]
        beyond = arm.startswith(("two-level", "converted")) and longest == "512"  # trained on 256 tokens
        assert ("'linformer_k': '8', 'linformer_decoder_k': '4'" in " ".join(command)) == beyond


def test_timed_translations_are_as_long_as_their_documents(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate, found = SequenceGenerator.generate, []

    def spy(*arguments: Any, **more: Any) -> Any:
        found.append(generate(*arguments, **more))
        return found[-1]

    monkeypatch.setattr(SequenceGenerator, "generate", spy)
    checkpoint = finished / "runs/transformer/seed-2/models/transformer/chosen.pt"
    seconds, _ = search(checkpoint, finished / "bin" / "tested", 100, 3, beam=2, threads=1, device="cpu", half=False)
    assert seconds > 0
    assert [[len(own["tokens"]) for own in hypotheses] for hypotheses in found[-1]] == [[100, 100]] * 3


def test_the_training_on_documents_begins_with_the_sentences(finished: Path) -> None:
    found = json.loads((finished / "results.json").read_text())
    by_arm = {row["arm"]: row for row in found["trainings"] if "command" in row}
    assert set(by_arm) == {"start", *TIMED}
    for arm in TIMED:
        command = by_arm[arm]["command"]
        start = command[command.index("--finetune-from-model") + 1]
        assert start == "runs/start/seed-2/models/transformer/chosen.pt"
        assert (finished / start).is_file()
        assert command[command.index("--task") + 1] == "document_translation"
        assert command[0] == "python"
        assert not any(Path(part).is_absolute() for part in command)


def test_the_report_has_all_of_it(finished: Path) -> None:
    report = (finished / "report.md").read_text()
    for heading in (
        "## Quality",
        "## d-BLEU by the length of the document",
        "## BLEU by the place of the sentence in its document",
        "## Missing and repeated sentences",
        "## Glossaries",
        "## Time and memory",
        "## Training",
        "## Models",
        "## Plots",
        "## Commands",
    ):
        assert report.count(f"{heading}\n") == 1
    assert "One seed (2) for every model" in report
    assert {path.name for path in finished.glob("*.png")} == {"quality-and-speed.png", "costs.png", "glossaries.png"}
    written = {path: path.read_bytes() for path in (*finished.glob("*.png"), finished / "report.md")}
    for path in written:
        path.unlink()
    write_report(finished)
    assert {path: path.read_bytes() for path in written} == written


def test_nothing_is_done_twice_and_settings_stay(folder: Path, finished: Path, capsys: pytest.CaptureFixture) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.glob("runs/*/*/models/*/chosen.pt")}
    run(parse(arguments(folder, finished, "--arms", ARMS)))
    said = capsys.readouterr().out
    assert said.count("already done") == 36
    assert "Measuring" not in said
    assert {path: path.stat().st_mtime_ns for path in before} == before
    for changed, what in ((("--dropout", "0.5"), "training dropout = 0.3, not 0.5"), (("--k", "8"), "k = 4, not 8")):
        with pytest.raises(UserError, match=f"was made with {what}: all models need the same"):
            run(parse(arguments(folder, finished, "--arms", ARMS, *changed)))


def test_seeds_of_another_machine_are_put_into_the_results(folder: Path, finished: Path, tmp_path: Path) -> None:
    before = json.loads((finished / "results.json").read_text())
    other = json.loads((finished / "results.json").read_text())
    for row in (*other["rows"], *other["trainings"]):
        row["seed"] = 5
    cost = {**other["costs"]["rows"][0], "arm": "converted"}  # of a model whose costs are not measured here
    other["costs"]["rows"].append(cost)
    (tmp_path / "other.json").write_text(json.dumps(other))
    run(parse(arguments(folder, finished, "--arms", ARMS, "--merge", str(tmp_path / "other.json"))))
    found = json.loads((finished / "results.json").read_text())
    assert found["rows"] == before["rows"] + other["rows"]
    assert {tuple(row["seeds"]) for row in found["differences"]} == {(2, 5)}
    assert [row["mean"] for row in found["differences"]] == [row["mean"] for row in before["differences"]]
    assert found["costs"]["rows"] == [*before["costs"]["rows"], cost]
    assert "Seeds 2, 5 for Transformer, " in (finished / "report.md").read_text()


def test_results_of_another_study_are_refused_before_anything_is_trained(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text(
        json.dumps({**{name: [] for name in OWN}, "corpus": {"train": 9}, "documents": {}})
    )
    given = ("--glossary", "0", "--bpe-merges", "20", "--merge", str(tmp_path / "other.json"))
    with pytest.raises(UserError, match=r"other\.json is of another study, its .*: leave it out"):
        run(parse(arguments(folder, tmp_path / "out", *given)))
    assert not (tmp_path / "out" / "runs").exists()


def test_a_folder_of_something_else_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("private")
    with pytest.raises(UserError, match="holds other files than this study's"):
        run(parse(arguments(folder, tmp_path)))
    with pytest.raises(UserError, match="run the study without --report-only first"):
        run(parse(["--out", str(tmp_path), "--report-only"]))
    assert {path.name for path in tmp_path.iterdir()} == {"letters.txt", ".lock"}


@pytest.mark.exhaustive
def test_killed_at_any_point_the_same_command_goes_on(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "linformer_fairseq.documents"]
    command += [
        *arguments(folder, tmp_path / "out", "--arms", "transformer,converted", "--jobs", "2"),
        "--glossary",
        "0",
    ]
    for until in (
        "Binarising short examples",
        "after 1 updates",
        "Transformer, seed 2:",
        "Translating test",
        "Measuring",
    ):
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
            assert any(until in line for line in process.stdout)
            process.send_signal(signal.SIGKILL)
    subprocess.run(command, cwd=ROOT, check=True)
    assert (tmp_path / "out" / "report.md").exists()
