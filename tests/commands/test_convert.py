"""Fairseq's commands accept a trained Transformer that the command has converted."""

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.cli.errors import UserError
from linformer_fairseq.models.loading import projection_weights
from linformer_fairseq.models.swap import FAST_PATH_PARAMETERS
from tests.commands.conftest import Converting, override_flags, rows_of
from tests.conftest import Shared
from tests.fairseq_commands import (
    LINFORMER,
    PLUGIN,
    TWO_LEVELS,
    Result,
    environment,
    generate_arguments,
    hypotheses,
    masked_loss,
    run,
    run_documented,
    run_module,
    same_hypotheses,
    translate,
    valid_losses,
    with_args,
)
from tests.variants import reads_checkpoints

pytestmark = [pytest.mark.slow, reads_checkpoints]

PAGE = "conversion.md"
Hypotheses = dict[int, tuple[float, str]]
LINEAR_DECODER = ["--linformer-attention", "decoder", "--linformer-decoder-projection", "linear"]


def command_of(said: str) -> str:
    """Returns the command of fairseq-train that the end of an output tells."""
    command = said.splitlines()[-1]
    assert command.startswith("fairseq-train ")
    return command


def tune(said: str, folder: Path) -> Result:
    """Runs that command for one update that changes nothing."""
    nothing = ["--max-update", 1, "--lr", 0, "--save-dir", folder]
    return run("train", *shlex.split(command_of(said))[1:], *nothing)


def test_a_converted_transformer_translates_as_before(
    trained_transformer: Path, data: Path, translated: Hypotheses, tmp_path: Path
) -> None:
    """By the documented command. All three attentions have two levels unless told otherwise."""
    out, table = tmp_path / "converted.pt", tmp_path / "table.csv"
    put = {"DATA": data / "bin", "checkpoint_best.pt": trained_transformer, "converted.pt": out}
    said = run_documented(PAGE, "linformer_fairseq.convert --data", put, "--csv", table).ok()
    assert "Sequences of up to 767 positions get the same outputs as before, but for rounding." in said
    assert f"The converted model is in {out}." in said
    header, *rows = rows_of(said).values()
    assert header == ["Texts", "Perplexity before", "Perplexity after", "Divergence", "Same best"]
    assert all(before == after and others == ["0.0000", "100.0%"] for _, before, after, *others in rows)
    with table.open(newline="") as file:
        assert [row["Up to"] for row in csv.DictReader(file)] == ["8", "16", "32"]
    settings = read_checkpoint(out)["cfg"]["model"]
    assert settings.arch == "two_level_transformer_tiny"
    assert settings.linformer_attention == "encoder,cross,decoder"
    same_hypotheses(translated, translate(data, out))


@pytest.fixture(scope="session")
def came_back(shared: Shared, trained_transformer: Path, data: Path, translated: Hypotheses) -> Path:
    """Returns that Transformer after a conversion to full attention, with which it translates as before, and back, by
    the documented commands."""

    def make(folder: Path) -> None:
        there, back = folder / "there.pt", folder / "back.pt"
        put = {"checkpoint_best.pt": trained_transformer, "converted.pt": there, "original.pt": back}
        said = run_documented(PAGE, "linformer_fairseq.convert --linformer-projection full", put).ok()
        assert "Sequences of any length get the same outputs as before, but for rounding." in said
        same_hypotheses(translated, translate(data, there))
        said = run_documented(PAGE, "linformer_fairseq.convert --to-fairseq", put).ok()
        assert "Sequences of any length" in said
        assert "fine-tune" not in said

    return shared("came_back", make) / "back.pt"


def test_full_attention_and_back(
    came_back: Path, trained_transformer: Path, data: Path, translated: Hypotheses
) -> None:
    """fairseq without this package takes what came back, which has the tensors and settings of the original."""
    before, after = (read_checkpoint(path) for path in (trained_transformer, came_back))
    assert vars(after["cfg"]["model"]) == vars(before["cfg"]["model"])
    weights = {key: tensor for key, tensor in before["model"].items() if key.split(".")[-1] not in FAST_PATH_PARAMETERS}
    torch.testing.assert_close(dict(after["model"]), weights, rtol=0, atol=0, equal_nan=True)
    arguments = generate_arguments(data, came_back, *override_flags())
    code = "from fairseq_cli.generate import cli_main; cli_main(); assert 'linformer_fairseq' not in sys.modules"
    same_hypotheses(translated, hypotheses(alone(code, *(word for word in arguments if word not in PLUGIN))))


@pytest.mark.skipif(find_spec("ctranslate2") is None, reason="CTranslate2 is not installed")
def test_ctranslate2_takes_what_came_back(came_back: Path, data: Path, translated: Hypotheses, tmp_path: Path) -> None:
    """It knows fairseq's models alone."""
    code = (
        "import ctranslate2 as c; _, path, data, out, text = sys.argv\n"
        "c.converters.FairseqConverter(path, data).convert(out)\n"
        "sources = [line.split() for line in open(text)]\n"
        "found = c.Translator(out, device='cpu').translate_batch(sources, beam_size=4, max_decoding_length=30)\n"
        "print(*(' '.join(result.hypotheses[0]) for result in found), sep='\\n')"
    )
    said = alone(code, came_back, data / "bin", tmp_path / "model", data / "test.en")
    assert said.splitlines()[-30:] == [text for _, (_, text) in sorted(translated.items())]


def alone(code: str, *arguments: object) -> str:
    """Returns what Python prints without this package; its safe loader takes settings, as old ones took all."""
    admit = "import sys, argparse, torch; torch.serialization.add_safe_globals([argparse.Namespace])"
    command = [sys.executable, "-c", f"{admit}\n{code}", *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_checkpoints_of_old_fairseqs(
    trained_transformer: Path,
    data: Path,
    translated: Hypotheses,
    tmp_path: Path,
    converting: Converting,
) -> None:
    """fairseq before 0.10 saved the command line as `args`, and torch before 1.6 a pickle; the checkpoint is one of
    today's after conversion."""
    old, out = tmp_path / "old.pt", tmp_path / "converted.pt"
    torch.save(with_args(read_checkpoint(trained_transformer)), old, _use_new_zipfile_serialization=False)
    converting(old, out, "--texts", 0)
    same_hypotheses(translated, translate(data, out))


def test_the_told_command_keeps_the_precision(
    trained_transformer: Path, tmp_path: Path, converting: Converting
) -> None:
    state, half = read_checkpoint(trained_transformer), tmp_path / "half.pt"
    state["cfg"]["common"]["fp16"] = state["cfg"]["distributed_training"]["fp16"] = state["cfg"]["model"].fp16 = True
    torch.save(state, half)
    told = [command_of(converting(x, tmp_path / "out.pt", "--texts", 0)) for x in (trained_transformer, half)]
    assert ["--fp16" in command.split() for command in told] == [False, True]


def test_the_told_command_trains_as_before(
    trained_transformer: Path, data: Path, tmp_path: Path, converting: Converting
) -> None:
    """Pasted into a shell it goes on from the fitted model with the sizes and settings of the training, in a folder of
    its own. A training that changes nothing has the perplexity that the table tells. E and F are fitted where they are:
    the encoder has none here."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    out = folder / "out.pt"
    flags = ["--linformer-k", 8, *LINFORMER, "--linformer-attention", "encoder,cross,decoder", "--linformer-window", 2]
    flags += ["--linformer-encoder-projection", "key-clusters"]
    said = converting(trained_transformer, out, *flags, "--data", data / "bin", "--fit", 30, "--lengths", 64)
    before, after = (read_checkpoint(path)["model"] for path in (trained_transformer, out))
    assert torch.equal(after["decoder.layers.0.self_attn.key_projection.weight"][:, :6], torch.eye(6))
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())

    user = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    user["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = command_of(said)
    assert " --lr 0.003 " in command
    pasted = subprocess.run(
        ["bash", "-c", f"{command} --max-update 1 --lr 0"], cwd=folder, env=user, capture_output=True, text=True
    )
    assert pasted.returncode == 0, pasted.stderr[-3000:]
    (perplexity,) = re.findall(r"valid on 'valid' subset .* \| ppl ([\d.]+)", pasted.stdout + pasted.stderr)
    assert float(perplexity) == pytest.approx(float(rows_of(said)["64"][2]), abs=0.02)
    before, after = (
        read_checkpoint(checkpoint)["cfg"]
        for checkpoint in (trained_transformer, folder / "out-tuned" / "checkpoint_last.pt")
    )
    changed = {"linformer", "arch", "_name", "data", "user_dir", "save_dir", "finetune_from_model", "max_update", "lr"}
    for part in ("task", "criterion", "optimizer", "lr_scheduler", "optimization", "dataset", "common", "checkpoint"):
        assert {**after[part], **dict.fromkeys(changed)} == {**before[part], **dict.fromkeys(changed)}, part
    before, after = vars(before["model"]), vars(after["model"])
    own = {name for name in after if name.startswith("linformer_")}
    assert {name for name in before | after if before.get(name) != after.get(name)} - own <= changed


def test_a_training_of_another_plugin(trained_transformer: Path, tmp_path: Path, converting: Converting) -> None:
    state = read_checkpoint(trained_transformer)
    state["cfg"]["criterion"]["_name"] = "of_another_plugin"
    torch.save(state, tmp_path / "other.pt")
    said = converting(tmp_path / "other.pt", tmp_path / "out.pt", "--texts", 0)
    flags = f"--finetune-from-model {tmp_path}/out.pt --linformer-projection two-level"
    assert said.splitlines()[-1].endswith(
        f"give the command of its training an architecture of this package, and {flags}"
    )


def test_a_converted_roberta(trained_roberta: Path, text: Path, tmp_path: Path, converting: Converting) -> None:
    """Outputs stay in short texts; fairseq-validate finds the loss that the command tells, and so does a training that
    changes nothing."""
    out = tmp_path / "converted.pt"
    cut = [*TWO_LEVELS, "--linformer-k", 4, "--linformer-exact-below", 24]
    put = {"roberta.pt": trained_roberta, "converted.pt": out}
    said = run_documented(PAGE, "linformer_fairseq.convert roberta.pt", put, *cut).ok()
    assert "Sequences of up to 23 positions get the same outputs as before, but for rounding." in said
    rows = {name: cells for name, cells in rows_of(said).items() if name != "Up to"}
    assert [*rows] == ["8", "16", "23", "32", "64"]
    assert [cells[1] == "0.0000" for cells in rows.values()] == [True, True, True, False, False]
    settings = read_checkpoint(out)["cfg"]["model"]
    assert (settings.arch, settings._name) == ("two_level_roberta", "two_level_roberta")

    shorter = [*TWO_LEVELS, "--linformer-k", 4, "--linformer-exact-below", 8, "--data", text]
    rows = rows_of(converting(trained_roberta, out, *shorter, "--lengths", "7,64"))
    assert rows["7"][1] == rows["7"][2]
    assert float(rows["64"][3]) > 0.01
    said = converting(trained_roberta, out, *shorter, "--lengths", 64)
    loss = masked_loss(text, out)
    assert 2**loss == pytest.approx(float(rows_of(said)["64"][2]), rel=2e-3)
    assert valid_losses(tune(said, tmp_path / "tuned").ok()) == [pytest.approx(loss, abs=0.002)]


def test_other_kinds_of_masked_language_models(
    trained_roberta: Path, text: Path, tmp_path: Path, converting: Converting
) -> None:
    """Learned E and F are fitted to training text; kinds with parameters of their own get fresh ones."""
    out = tmp_path / "converted.pt"
    flags = [*LINFORMER, "--linformer-k", 8, "--data", text, "--lengths", "8,64"]
    start, fitted = (rows_of(converting(trained_roberta, out, *flags, "--fit", number)) for number in (0, 30))
    assert fitted["8"][1] == fitted["8"][2] == start["8"][2]
    assert float(fitted["64"][3]) < float(start["64"][3])
    converting(trained_roberta, out, "--linformer-projection", "conv", "--linformer-k", 8, "--texts", 0)
    before, after = (read_checkpoint(path)["model"] for path in (trained_roberta, out))
    assert {*projection_weights(after)} == {*after} - {*before}
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    masked_loss(text, out)


def test_refusals_of_masked_language_models(
    trained_roberta: Path, text: Path, tmp_path: Path, converting: Converting
) -> None:
    state = read_checkpoint(trained_roberta)
    tuned, unmasked, out = (tmp_path / f"{name}.pt" for name in ("tuned", "unmasked", "out"))
    for path, setting in ((tuned, {"_name": "sentence_prediction"}), (unmasked, {"mask_prob": 1e-9})):
        task = {**state["cfg"]["task"], **setting}
        torch.save({**state, "cfg": {**state["cfg"], "task": task}}, path)
    for arguments, said in (
        ((trained_roberta, out, "--linformer-attention", "cross"), "this model has no cross-attention"),
        ((trained_roberta, out, "--lengths", "8,65"), "--lengths 65 is longer than the 64 tokens that the model takes"),
        (
            (trained_roberta, out, *LINFORMER, "--linformer-k", 65),
            "--linformer-k 65 is larger than the longest source, 64 tokens",
        ),
        ((tuned, out, "--data", text), r"is not the data of \S*tuned.pt \(Must set task.num_classes\)"),
        ((unmasked, out, "--data", text), "valid has no masked token: name another --subset"),
    ):
        with pytest.raises(UserError, match=said):
            converting(*arguments)
    assert not out.exists()


def test_sentences_too_long_for_the_model(
    trained_transformer: Path, data: Path, tmp_path: Path, converting: Converting
) -> None:
    """Sentences that are too long are left out, and the command says how many."""
    state = torch.load(trained_transformer, weights_only=True)
    state["cfg"]["model"].max_source_positions = state["cfg"]["task"]["max_source_positions"] = 16
    checkpoint = tmp_path / "short.pt"
    torch.save(state, checkpoint)
    lengths = [len(line.split()) + 1 for line in (data / "valid.en").read_text().splitlines()]
    flags = ["--fit", 5, "--linformer-k", 4, *LINEAR_DECODER]
    said = converting(checkpoint, tmp_path / "converted.pt", "--data", data / "bin", *flags)
    sentence = f"{sum(n > 16 for n in lengths)} of valid's {len(lengths)} sentences are too long for the model."
    assert sentence in said
    assert "of train's" in said


def test_refusals(trained_transformer: Path, trained: Path, data: Path, tmp_path: Path, converting: Converting) -> None:
    out, copy, without_train = tmp_path / "out.pt", tmp_path / "copy.pt", tmp_path / "bin"
    shutil.copy(trained_transformer, copy)
    shutil.copytree(data / "bin", without_train, ignore=shutil.ignore_patterns("train*"))
    result = run_module("linformer_fairseq.convert", trained, out)
    assert "which was trained for its own attention: name the checkpoint of a model" in result.sentence()
    assert result.status == 2
    fit = ("--fit", 5, "--linformer-k", 4)
    for arguments, said in (
        ((tmp_path / "none.pt", out), "is missing: name a checkpoint that fairseq-train saved"),
        ((copy, copy), "is the checkpoint itself: name another OUT"),
        ((copy, tmp_path), "cannot be written: name a file in a folder that exists"),
        ((copy, out, "--fit", 5), "--fit needs --data"),
        ((copy, out, "--csv", tmp_path / "table.csv", "--texts", 0), "--csv needs a comparison: leave out --texts 0"),
        ((copy, out, "--csv", copy), "copy.pt is a checkpoint: name another file for --csv"),
        ((copy, out, "--csv", out), "out.pt is a checkpoint: name another file for --csv"),
        ((copy, out, "--subset", "train"), "--subset needs --data"),
        ((copy, out, "--lengths", 8, "--texts", 0), "--lengths needs a comparison: leave out --texts 0"),
        ((copy, out, "--data", data / "bin", "--texts", 3), "--texts is for random texts: leave it out, or give 0"),
        ((copy, out, "--to-fairseq", "--linformer-k", 4), "--to-fairseq leaves nothing to choose"),
        ((copy, out, "--to-fairseq"), "copy.pt is of fairseq's own model already: leave out --to-fairseq"),
        ((copy, out, "--csv", tmp_path), "cannot be written: name a file in a folder that exists"),
        ((copy, out, "--lengths", "8,65"), "--lengths 65 is longer than the 64 tokens that the model takes"),
        ((copy, out, "--data", tmp_path), r"is not the data of \S+ \(Could not infer .*\): name what it was"),
        ((copy, out, "--data", data / "bin", "--subset", "other"), "there is no other in the data"),
        ((copy, out, "--data", data / "bin", *fit), "There is no E or F to fit"),
        (
            (copy, out, "--data", data / "bin", *fit, "--linformer-sharing", "layerwise"),
            "--fit finds an E and an F for every layer: leave out --linformer-sharing",
        ),
        (
            (copy, out, "--data", without_train, *fit, *LINEAR_DECODER),
            "--fit takes its sentences from there, so leave it out",
        ),
    ):
        with pytest.raises(UserError, match=said):
            converting(*arguments)
    assert {path.name for path in tmp_path.iterdir()} == {"copy.pt", "bin"}
