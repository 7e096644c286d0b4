"""`fairseq-train` with the plugin resumes, fine-tunes, takes hydra's configuration and refuses bad flags."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.commands.conftest import CAUSAL, override_flags
from tests.fairseq_commands import (
    SHORT,
    generate_arguments,
    hydra_arguments,
    kill_once_saved,
    run,
    run_documented,
    same_hypotheses,
    train,
    train_arguments,
    translate,
    valid_losses,
)

pytestmark = pytest.mark.slow


def test_killed_training_resumes(data: Path, trained_causal: Path, tmp_path: Path) -> None:
    """A training whose console script is killed ends with the loss of the same training undisturbed."""
    arguments = train_arguments(data, tmp_path / "killed", *CAUSAL)
    kill_once_saved(arguments, tmp_path / "killed.log")
    resumed = run("train", *arguments).ok()
    assert "Loaded checkpoint" in resumed
    assert "done training" in resumed
    undisturbed = (trained_causal.parent / "log").read_text()
    assert valid_losses(resumed)[-1] == pytest.approx(valid_losses(undisturbed)[-1], abs=1e-3)


def test_finetuning_a_transformer(data: Path, tmp_path: Path, trained_transformer: Path) -> None:
    """After one update with a learning rate of zero, with projections that start fresh, translations are the same."""
    nothing = ["--max-update", 1, "--lr", 0, "--linformer-k", 64, "--linformer-projection", "conv"]
    arguments = train_arguments(data, tmp_path, "--finetune-from-model", trained_transformer, *nothing)
    assert "key_projection.weight, value_projection.weight start fresh" in run("train", *arguments).ok()
    before, after = (
        translate(data, checkpoint, *override_flags())
        for checkpoint in (trained_transformer, tmp_path / "checkpoint_last.pt")
    )
    assert len(before) == 30
    same_hypotheses(before, after)


def test_hydra(data: Path, tmp_path: Path) -> None:
    options = ["model.linformer_k='8,4'", "model.linformer_sharing=key-value", "model.linformer_projection=linear"]
    options.append("+model.encoder_embed_dim=32")
    run("hydra_train", *hydra_arguments(data, tmp_path, *options, "common.cpu=true")).ok()
    weights = torch.load(tmp_path / "checkpoint_best.pt", map_location="cpu")["model"]
    assert weights["encoder.layers.0.self_attn.key_projection.weight"].shape == (8, 64)
    assert weights["encoder.layers.1.self_attn.key_projection.weight"].shape == (4, 64)
    assert weights["decoder.embed_tokens.weight"].size(1) == 32
    run("generate", *generate_arguments(data, tmp_path / "checkpoint_best.pt")).ok()


def test_bfloat16(data: Path, tmp_path: Path) -> None:
    """Two levels train in bfloat16 in all attention, by the documented command of hydra, as fairseq-train's --bf16
    expects a TPU."""
    sizes = ("layers", 2), ("embed_dim", 32), ("ffn_embed_dim", 32), ("attention_heads", 2)
    options = [f"+model.{side}_{name}={size}" for name, size in sizes for side in ("encoder", "decoder")]
    options += [f"model.linformer_{name}={size}" for name, size in SHORT.items()]
    options += ["common.bf16=true", "common.cpu=true", "model.linformer_k=8", "dataset.max_tokens=400"]
    options += ["lr_scheduler.warmup_updates=1", "optimization.max_epoch=2"]
    options += [f"checkpoint.save_dir={tmp_path}", f"hydra.run.dir={tmp_path}"]
    found = run_documented("flags.md", "fairseq-hydra-train task=translation", {"DATA": data / "bin"}, *options)
    first, second = valid_losses(found.ok())
    assert second < first


def test_a_training_goes_on_with_the_attention_that_it_began_with(
    data: Path, tmp_path: Path, trained_causal: Path, trained_transformer: Path
) -> None:
    """However flags say it; a new one may begin with the weights and another attention."""
    last = shutil.copy(trained_causal.with_name("checkpoint_last.pt"), tmp_path)
    longer = ["--max-epoch", 4, "--linformer-k"]
    sentence = train(data, tmp_path, *CAUSAL, *longer, 4, "--linformer-open-slots", 2).sentence()
    assert f"error: {last} was trained with --linformer-k 8, --linformer-open-slots 1: go on so" in sentence
    sizes = [f"model.linformer_{name}={size}" for name, size in {**SHORT, "k": 8, "block_size": 4}.items()]
    options = [*sizes, "optimization.max_epoch=4", "common.cpu=true", "criterion.label_smoothing=0.1"]
    hydra = run("hydra_train", *hydra_arguments(data, tmp_path, *options, arch="two_level_transformer_tiny"))
    assert f"error: {last} was trained with --linformer-block-size 2: go on so" in hydra.sentence()
    plain = train(data, trained_transformer.parent, *longer, 8).sentence()
    assert f"{trained_transformer.parent}/checkpoint_last.pt was trained with --arch transformer_tiny: go on" in plain
    start = ["--restore-file", last, "--reset-optimizer", "--reset-dataloader", "--reset-meters"]
    assert "Loaded checkpoint" in train(data, tmp_path / "new", *CAUSAL, *start, "--max-update", 1, *longer[2:], 4).ok()
    same = [*CAUSAL, *longer, "8,8", "--linformer-cross-k", 8]
    assert "Loaded checkpoint" in train(data, tmp_path, *same, arch="full_transformer_tiny").ok()


def test_a_new_training_says_its_sizes(data: Path, tmp_path: Path) -> None:
    """A configuration without them would mean those of the first models."""
    arguments = hydra_arguments(data, tmp_path, "common.cpu=true", arch="two_level_transformer_tiny")
    hydra = run("hydra_train", *arguments, "~model.linformer_sizes")
    assert "the model's configuration does not have linformer_sizes: give --linformer-sizes 2, or 1" in hydra.sentence()


def test_a_training_says_once_where_k_has_no_effect(data: Path, tmp_path: Path) -> None:
    """Two levels alone say so, where they leave short texts as they are; a translation does not."""
    update = ["--max-update", 2, "--disable-validation"]
    for arch, flags, said in (
        ("two_level_transformer_tiny", [], ["two levels: texts of fewer than 768 tokens get full attention"]),
        ("two_level_transformer_tiny", ["--linformer-exact-below", 0], []),
        ("linformer_transformer_tiny", [], []),
    ):
        output = train(data, tmp_path / f"{arch}{len(flags)}", *update, *flags, arch=arch).ok()
        lines = [line for line in output.splitlines() if "--linformer-k has no effect" in line]
        assert [line.partition(" | ")[2].split(" | ")[2].partition(",")[0] for line in lines] == said
    translated = run("generate", *generate_arguments(data, tmp_path / "two_level_transformer_tiny0/checkpoint_last.pt"))
    assert "--linformer-k has no effect" not in translated.ok()
