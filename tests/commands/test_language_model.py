"""The language model works in `fairseq-train`, `-eval-lm`, `-generate`, `-interactive` and `-hydra-train`."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.cli.errors import UserError
from tests.commands.conftest import Converting, rows_of
from tests.fairseq_commands import (
    PLUGIN,
    ROOT,
    TWO_LEVELS,
    Result,
    generate_arguments,
    hypotheses,
    run,
    run_documented,
    valid_losses,
    with_args,
)
from tests.variants import reads_checkpoints

pytestmark = pytest.mark.slow

EOS_MODE = ["--task", "language_modeling", "--sample-break-mode", "eos"]


def training(
    text: Path, save_dir: Path, *more: object, arch: str = "linformer_transformer_lm_gpt2_tiny"
) -> list[object]:
    return [
        *(
            text,
            *PLUGIN,
            *EOS_MODE,
            "--arch",
            arch,
            *([] if arch.startswith("transformer_lm") else ["--linformer-k", 8]),
        ),
        *("--tokens-per-sample", 64, "--max-tokens", 400, "--optimizer", "adam", "--lr", 0.01, "--max-epoch", 3),
        *("--save-dir", save_dir, "--cpu", "--no-progress-bar", "--no-epoch-checkpoints"),
        *("--required-batch-size-multiple", 1, "--num-workers", 0, *more),
    ]


def documented_training(text: Path, save_dir: Path, max_epoch: int, *more: object) -> Result:
    """Runs the training that the documentation has, of a model that is small enough for a test."""
    sizes = ("layers", 2), ("embed-dim", 32), ("input-dim", 32), ("output-dim", 32), ("ffn-embed-dim", 32)
    small = [word for name, size in sizes for word in (f"--decoder-{name}", size)]
    quick = ["--decoder-attention-heads", 2, "--dropout", 0, "--lr", 0.01, "--lr-scheduler", "fixed"]
    quick += ["--warmup-updates", 1, "--max-epoch", max_epoch, "--save-dir", save_dir, "--cpu", "--num-workers", 0]
    quick += ["--no-progress-bar", "--no-epoch-checkpoints", *more]
    return run_documented("attention.md", "fairseq-train language_modeling", {"DATA": text}, *small, *quick)


@pytest.fixture(scope="session")
def trained_lm(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lm")
    losses = valid_losses(documented_training(text, folder, max_epoch=20).ok())
    assert losses[-1] < losses[0] / 2
    return folder / "checkpoint_last.pt"


def perplexity(text: Path, checkpoint: Path, *more: object) -> float:
    options = ["--path", checkpoint, "--max-tokens", 64, "--cpu", "--required-batch-size-multiple", 1]
    output = run("eval_lm", text, *PLUGIN, *options, *more).ok()
    assert re.search(r"Evaluated [1-9]\d* tokens", output)
    return 2 ** float(re.search(r"Loss \(base 2\): ([\d.]+)", output)[1])


def test_eval_lm(text: Path, trained_lm: Path) -> None:
    """The perplexity is near that of the corpus, in which only the starts and ends of lines are uncertain; the
    documented command evaluates every token, most of them in blocks as long as the model takes."""
    of_all = ["--path", trained_lm, "--gen-subset", "train", "--cpu"]
    output = run_documented("attention.md", "fairseq-eval-lm", {"DATA": text}, *of_all).ok()
    tokens, found = re.findall(r"Evaluated ([\d,]+) tokens|Perplexity: ([\d.]+)", output)
    lines = (text.parent / "train.txt").read_text().splitlines()
    assert int(tokens[0].replace(",", "")) == sum(len(line.split()) + 1 for line in lines) > 4 * 512
    assert 1 < float(found[1]) < 2.5
    blocks = ["--sample-break-mode", "none", "--tokens-per-sample", 32]
    assert 1 < perplexity(text, trained_lm, *blocks) < 4
    assert 1 < perplexity(text, trained_lm, *blocks, "--context-window", 16) < 4


def test_training_resumes(text: Path, trained_lm: Path, tmp_path: Path) -> None:
    shutil.copy(trained_lm, tmp_path)
    sentence = documented_training(text, tmp_path, 21, "--linformer-k", 32).sentence()
    assert f"error: {tmp_path}/checkpoint_last.pt was trained with --linformer-k 64: go on so" in sentence
    output = documented_training(text, tmp_path, max_epoch=21).ok()
    assert "Loaded checkpoint" in output
    assert len(valid_losses(output)) == 1


def test_generation_goes_on_counting(text: Path, trained_lm: Path) -> None:
    options = ["--path", trained_lm, "--beam", 4, "--max-len-b", 20, "--cpu", *PLUGIN]
    prompts = "w1 w2\nw5 w6 w7 w8\n"
    output = run("interactive", text, "--task", "language_modeling", *options, text=prompts).ok()
    spoken = re.findall(r"^H-\d+\t\S+\t(.*)$", output, re.MULTILINE)
    assert [words.split()[:5] for words in spoken] == [words.split() for words in ("w1 w2 w3 w4 w5", "w5 w6 w7 w8 w9")]
    prefix = ["--prefix-size", 2, "--required-batch-size-multiple", 1, "--gen-subset", "test"]
    output = run("generate", text, *EOS_MODE, *options, *prefix).ok()
    assert len(re.findall(r"^H-\d+\t", output, re.MULTILINE)) == 30


def test_blocks_longer_than_the_model_are_refused(text: Path, trained_lm: Path) -> None:
    """Fairseq-eval-lm would leave them out, or end in the middle of the text where only a context makes them so long;
    the length of a model takes the token of --add-bos-token into account, unless it is given."""
    evaluate = [text, *PLUGIN, "--path", trained_lm, "--cpu"]
    sentence = run("eval_lm", *evaluate).sentence()
    assert "--tokens-per-sample 1024 makes blocks that are longer than the model" in sentence
    assert "give --tokens-per-sample 512 or less" in sentence
    with_context = ["--tokens-per-sample", 520, "--context-window", 16]
    assert "520 makes blocks" in run("eval_lm", *evaluate, *with_context).sentence()
    folder = trained_lm.parent / "bos"
    blocks = ["--tokens-per-sample", 32, "--sample-break-mode", "none", "--add-bos-token"]
    train = training(text, folder, *blocks, "--max-update", 2)
    sentence = run("train", *train, "--max-target-positions", 32).sentence()
    assert "error: a target of 33 tokens is longer than the 32" in sentence
    run("train", *train).ok()
    assert perplexity(text, folder / "checkpoint_last.pt", *blocks) > 1
    sentence = run("eval_lm", *evaluate, *blocks, "--path", folder / "checkpoint_last.pt", *blocks[:1], 33).sentence()
    assert "with the token of --add-bos-token, are longer than the model: give --tokens-per-sample 32" in sentence


def test_fusion_beyond_the_length_of_the_language_model(data: Path, trained: Path, tmp_path: Path) -> None:
    """Where the command tells that translations may outgrow it, none is made; two levels have no such length."""
    words = shutil.copytree(data / "bin", tmp_path / "bin")
    splits = [word for split in ("train", "valid") for word in (f"--{split}pref", data / f"{split}.de")]
    run("preprocess", "--only-source", *splits, "--srcdict", words / "dict.de.txt", "--destdir", words).ok()

    def fused(kind: str, *limits: object) -> Result:
        folder = tmp_path / kind
        if not folder.exists():
            flags = ["--linformer-projection", kind, "--tokens-per-sample", 32, "--max-update", 1]
            run("train", *training(words, folder, *flags)).ok()
        lm = ["--lm-path", folder / "checkpoint_last.pt", "--lm-weight", 0.1]
        return run("generate", *generate_arguments(tmp_path, trained, *lm, *limits))

    assert "takes 31 tokens of a translation" in fused("linear", "--max-len-b", 32).sentence()
    assert len(hypotheses(fused("linear", "--max-len-b", 31, "--min-len", 31).ok())) == 30
    by_source = fused("linear", "--max-len-a", 20, "--max-len-b", 1, "--min-len", 40)
    assert "to be sure that there is none" in by_source.output
    assert "error: a target of 33 tokens is longer than the 32" in by_source.sentence()
    assert len(hypotheses(fused("two-level", "--max-len-b", 40, "--min-len", 40).ok())) == 30


def test_hydra(text: Path, tmp_path: Path) -> None:
    folder = ROOT / "linformer_fairseq"
    arguments = [
        *("--config-dir", folder / "config", "model=linformer_transformer_lm", f"common.user_dir={folder}"),
        *("task=language_modeling", f"task.data={text}", "task.tokens_per_sample=64", "task.sample_break_mode=eos"),
        *("model.linformer_k='4,2'", "+model.decoder_layers=2", "+model.decoder_embed_dim=16"),
        *("+model.decoder_ffn_embed_dim=16", "+model.decoder_attention_heads=2", "+model.decoder_input_dim=16"),
        *("+model.decoder_output_dim=16", "optimizer=adam", "optimizer.adam_betas='(0.9,0.98)'"),
        *(
            "criterion=cross_entropy",
            "lr_scheduler=fixed",
            "optimization.lr=[0.01]",
            "optimization.max_epoch=1",
            "dataset.max_tokens=400",
        ),
        *("common.cpu=true", f"checkpoint.save_dir={tmp_path}", f"hydra.run.dir={tmp_path}"),
    ]
    two_levels = run("hydra_train", *arguments, "model.linformer_projection=two-level", "~model.linformer_sizes")
    assert "configuration does not have linformer_sizes: give --linformer-sizes 2, or 1" in two_levels.sentence()
    assert len(valid_losses(run("hydra_train", *arguments).ok())) == 1
    assert (tmp_path / "checkpoint_best.pt").exists()


@reads_checkpoints
def test_a_converted_transformer_lm(text: Path, tmp_path: Path, converting: Converting) -> None:
    """fairseq-eval-lm finds the perplexity of before up to the exact length, and another one beyond;
    fairseq-interactive and a training take the checkpoint; so it is with one of fairseq before 0.10."""
    run("train", *training(text, tmp_path, arch="transformer_lm_gpt2_tiny")).ok()
    trained, old, out, of_old = (tmp_path / f"{name}.pt" for name in ("checkpoint_last", "old", "converted", "of_old"))
    torch.save(with_args(read_checkpoint(trained)), old)
    cut = [*TWO_LEVELS, "--linformer-k", 4, "--linformer-exact-below", 16]
    said = converting(trained, out, *cut, "--data", text, "--lengths", 64)
    assert "Sequences of up to 16 positions get the same outputs as before, but for rounding." in said
    for length, paths in ((16, (trained, out)), (48, (trained, out, of_old))):
        blocks = ["--sample-break-mode", "none", "--tokens-per-sample", length]
        if of_old in paths:
            converting(old, of_old, *cut, "--texts", 0)
        before, after, *same = (perplexity(text, path, *blocks) for path in paths)
        assert (after == pytest.approx(before, rel=2e-4)) == (length == 16)
        assert same in ([], [after])
    nothing = ["--max-update", 1, "--lr", 0, "--save-dir", tmp_path / "tuned"]
    tuned = run("train", *shlex.split(said.splitlines()[-1])[1:], *nothing).ok()
    assert 2 ** valid_losses(tuned)[0] == pytest.approx(float(rows_of(said)["64"][2]), rel=2e-3)
    options = ["--path", out, "--beam", 1, "--max-len-b", 20, "--cpu", *PLUGIN]
    assert "H-0" in run("interactive", text, "--task", "language_modeling", *options, text="w1 w2\n").ok()

    flags = ["--linformer-k", 8, "--linformer-projection", "linear", "--linformer-window", 3]
    rows = rows_of(converting(trained, tmp_path / "linear.pt", *flags, "--data", text, "--fit", 20, "--lengths", 5))
    assert rows["5"][1] == rows["5"][2]  # five positions fit into slots and window
    assert float(rows["longer"][3]) > 0
    with pytest.raises(UserError, match=r"^--linformer-attention names encoder, and this model has no"):
        converting(trained, tmp_path / "no.pt", "--linformer-attention", "encoder")
    assert not (tmp_path / "no.pt").exists()
