"""Any model of fairseq's with other attention is trained, killed, resumed and searched with by fairseq's commands."""

import re
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.commands.conftest import override_flags
from tests.conftest import Shared
from tests.fairseq_commands import PLUGIN, hypotheses, kill_once_saved, run, same_hypotheses
from tests.variants import variants
from tests.warm import commands

pytestmark = pytest.mark.slow

COMMON = ["--cpu", "--required-batch-size-multiple", 1, "--num-workers", 0, *PLUGIN]
TRAINING = [
    *("--optimizer", "adam", "--lr", 0.003, "--max-tokens", 400, "--no-progress-bar", "--log-interval", 5),
    *("--save-interval-updates", 10, "--disable-validation", "--max-epoch", 100, "--no-epoch-checkpoints"),
    *("--update-epoch-batch-itr", True),  # newer fairseq makes an epoch's batches anew where it resumes alone
]


def sizes(*sides: str) -> list[object]:
    """Returns the flags that make the layers of an encoder or a decoder small."""
    small = {"layers": 2, "embed-dim": 32, "ffn-embed-dim": 32, "attention-heads": 2}
    return [word for side in sides for name, size in small.items() for word in (f"--{side}-{name}", size)]


LABELS = ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", 0.1]
SEQUENCES = [*sizes("encoder", "decoder"), "--max-source-positions", 64, "--max-target-positions", 64]
PAIRS = ["--task", "multilingual_translation", "--lang-pairs", "en-de,de-en"]
SPEECH = ["--task", "speech_to_text", "--config-yaml", "config.yaml"]
LANGUAGE = ["--task", "language_modeling", "--sample-break-mode", "eos", "--tokens-per-sample", 64]


@dataclass
class Case:
    prefix: str
    """The kind of attention, as architectures have it."""
    data: str
    """The fixture of its data."""
    training: list[object]
    """Flags of fairseq-train."""
    search: list[object]
    """Flags of fairseq-generate."""


CASES = {
    "bart_base": Case("two_level_", "data", [*LABELS, *SEQUENCES, "--share-all-embeddings"], []),
    "transformer_align": Case(
        "linformer_",
        "aligned",
        [
            *("--criterion", "label_smoothed_cross_entropy_with_alignment", "--label-smoothing", 0.1),
            *("--load-alignments", "--alignment-layer", 1, "--alignment-heads", 1, *SEQUENCES),
        ],
        ["--print-alignment", "hard"],
    ),
    "s2t_transformer_s": Case(
        "two_level_",
        "speech",
        [*SPEECH, *LABELS, *sizes("encoder", "decoder"), "--max-source-positions", 256, "--conv-channels", 16],
        SPEECH,
    ),
    "multilingual_transformer": Case(
        "two_level_", "data", [*PAIRS, *LABELS, *SEQUENCES], [*PAIRS, "-s", "en", "-t", "de"]
    ),
    "transformer_wmt_en_de": Case("full_", "data", [*LABELS, *SEQUENCES], []),
    "transformer_lm_big": Case(
        "linformer_",
        "text",
        [*LANGUAGE, *sizes("decoder"), "--criterion", "cross_entropy"],
        [*LANGUAGE, "--prefix-size", 2],
    ),
}


@pytest.fixture(scope="session")
def speech(shared: Shared) -> Path:
    """Returns a folder of features of speech, of ten frames a word."""

    def make(folder: Path) -> None:
        generator = np.random.default_rng(1)
        words = generator.normal(size=(12, 80)).astype(np.float32)
        (folder / "dict.txt").write_text("".join(f"w{word} 1\n" for word in range(12)))
        (folder / "config.yaml").write_text("vocab_filename: dict.txt\ninput_feat_per_channel: 80\n")
        for split, size in (("train", 100), ("valid", 1), ("test", 30)):
            lines = ["id\taudio\tn_frames\ttgt_text"]
            for number in range(size):
                spoken = generator.integers(12, size=generator.integers(1, 12))
                features = words[spoken].repeat(10, 0)
                np.save(folder / f"{split}{number}.npy", features)
                text = " ".join(f"w{word}" for word in spoken)
                lines.append(f"{number}\t{folder / split}{number}.npy\t{len(features)}\t{text}")
            (folder / f"{split}.tsv").write_text("\n".join(lines) + "\n")

    return shared("speech", make)


@pytest.fixture(scope="session")
def aligned(shared: Shared, data: Path) -> Path:
    """Returns the corpus with the alignments of its words, whose order is reversed."""

    def make(folder: Path) -> None:
        prefixes = []
        for split in ("train", "valid", "test"):
            for language in ("en", "de"):
                (folder / f"{split}.{language}").write_text((data / f"{split}.{language}").read_text())
            lengths = [len(line.split()) for line in (data / f"{split}.en").read_text().splitlines()]
            pairs = [" ".join(f"{n - 1 - i}-{i}" for i in range(n)) for n in lengths]
            (folder / f"{split}.align").write_text("\n".join(pairs) + "\n")
            prefixes += [f"--{split}pref", folder / split]
        dictionary = ["--joined-dictionary", "--align-suffix", "align"]
        run("preprocess", "-s", "en", "-t", "de", *prefixes, "--destdir", folder / "bin", *dictionary).ok()

    return shared("aligned", make)


def parameters(checkpoint: Path) -> dict[str, torch.Tensor]:
    return torch.load(checkpoint, map_location="cpu")["model"]


def updates(checkpoint: Path) -> int:
    """Returns how many updates led to a checkpoint."""
    return torch.load(checkpoint, map_location="cpu")["optimizer_history"][-1]["num_updates"]


def renamed(checkpoint: Path, arch: str) -> Path:
    """Returns the file of a checkpoint with its weights for another architecture."""
    state, out = torch.load(checkpoint, map_location="cpu"), checkpoint.with_name("renamed.pt")
    state["cfg"]["model"] = Namespace(**{**vars(state["cfg"]["model"]), "arch": arch, "_name": arch})
    torch.save(state, out)
    return out


@pytest.mark.parametrize("arch", variants(CASES, default=[*CASES][:3]))
def test_a_model_is_trained_killed_resumed_and_searched_with(
    arch: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """A training that is killed goes on to the parameters of one that is not. Where attention to short texts is exact,
    a search finds what it finds in fairseq's own model with these parameters."""
    case = CASES[arch]
    data = request.getfixturevalue(case.data)
    data = data / "bin" if (data / "bin").exists() else data
    train = [data, "--arch", case.prefix + arch, *case.training, *TRAINING, *COMMON]
    killed, whole = (tmp_path / name / "checkpoint_last.pt" for name in ("killed", "whole"))
    kill_once_saved([*train, "--save-dir", killed.parent], tmp_path / "log", commands() / "fairseq-train")
    train += ["--max-update", updates(killed) + 5, "--save-dir"]
    assert "Loaded checkpoint" in run("train", *train, killed.parent).ok()
    loss = "alignment_loss" if "--load-alignments" in train else " loss"
    first, *_, last = map(float, re.findall(f"train_inner .*{loss}=([^,]+)", run("train", *train, whole.parent).ok()))
    assert 0 < last < first
    resumed = parameters(killed)
    for name, expected in parameters(whole).items():
        assert "_float_tensor" in name or torch.equal(resumed[name], expected), name  # which 0.12.2 never sets

    def searched(checkpoint: Path, *more: object) -> str:
        flags = [*case.search, *COMMON, "--beam", 3, "--max-len-b", 20, *more]
        return run("generate", data, *flags, "--path", checkpoint).ok()

    found = searched(whole)
    assert len(hypotheses(found)) == 30
    if "--print-alignment" in case.search:
        assert len(re.findall(r"^A-\d+\t\d+-\d+", found, re.MULTILINE)) == 30
    if case.prefix in ("two_level_", "full_"):
        same_hypotheses(hypotheses(found), hypotheses(searched(renamed(whole, arch), *override_flags())))
