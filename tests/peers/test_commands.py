"""fairseq's commands and the conversion know other packages' attention by `--user-dir examples/peers`, alone."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from linformer_fairseq.checkpoints import read_checkpoint
from linformer_fairseq.modules import CAUSAL_KINDS, KINDS
from tests.fairseq_commands import (
    generate_arguments,
    hypotheses,
    masked_arguments,
    run,
    run_module,
    train_arguments,
    valid_losses,
    validate_arguments,
)
from tests.peers.conftest import PEERS
from tests.variants import reads_checkpoints, variants

pytestmark = pytest.mark.slow

PLUGIN = ["--user-dir", "examples/peers"]
FLAGS = {
    "nystromformer": ["--linformer-landmarks", 4],
    "performer": ["--linformer-features", 16],
    "longformer": ["--linformer-window-size", 4],
    "reformer": ["--linformer-bucket-size", 4, "--linformer-hashes", 2],
}
UNKNOWN = f"error: --linformer-projection is one of {', '.join(kind for kind in KINDS)}, not "


def test_the_plugin_alone_has_kinds_of_its_own() -> None:
    """Those that other tests go through."""
    code = "import linformer_fairseq.modules as m; print(*m.KINDS, *m.CAUSAL_KINDS)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert found == [kind for kinds in (KINDS, CAUSAL_KINDS) for kind in kinds if kind not in PEERS]
    assert not set(PEERS) & set(found)


@pytest.mark.parametrize("kind", variants(PEERS, default=["performer"]))
def test_a_translation_model(kind: str, data: Path, tmp_path: Path) -> None:
    """`--linformer-k` means nothing to it, and its default alone is let pass."""
    flags = [*PLUGIN, "--linformer-projection", kind, "--linformer-attention", "encoder", *FLAGS[kind]]
    arguments = train_arguments(data, tmp_path, *flags, "--linformer-k", 64, "--max-epoch", 9)
    run("train", *arguments, "--max-update", 2).ok()
    checkpoint = tmp_path / "checkpoint_last.pt"
    said = run("train", *arguments, "--max-update", 4).ok()
    assert f"Loaded checkpoint {checkpoint} (epoch 1 @ 2 updates)" in said
    (loss,) = valid_losses(run("validate", *validate_arguments(data, checkpoint), *PLUGIN).ok())
    assert loss == valid_losses(said)[-1]
    assert len(hypotheses(run("generate", *generate_arguments(data, checkpoint), *PLUGIN).ok())) == 30
    assert run("generate", *generate_arguments(data, checkpoint)).sentence() == f"{UNKNOWN}{kind!r}"


@pytest.mark.parametrize("kind", variants(PEERS, default=["longformer"]))
def test_a_masked_language_model(kind: str, text: Path, tmp_path: Path) -> None:
    flags = [*PLUGIN, "--linformer-projection", kind, *FLAGS[kind]]
    arguments = masked_arguments(text, tmp_path, *flags, arch="linformer_roberta")
    run("train", *arguments, "--max-update", 2).ok()
    checkpoint = tmp_path / "checkpoint_last.pt"
    said = run("train", *arguments, "--max-update", 4).ok()
    assert f"Loaded checkpoint {checkpoint} (epoch 1 @ 2 updates)" in said
    validate = [text, "--path", checkpoint, "--task", "masked_lm", "--criterion", "masked_lm", "--cpu"]
    assert valid_losses(run("validate", *validate, "--max-tokens", 400, *PLUGIN).ok())
    refused = run("validate", *validate, "--max-tokens", 400, "--user-dir", "linformer_fairseq")
    assert refused.sentence() == f"{UNKNOWN}{kind!r}"


@reads_checkpoints
@pytest.mark.parametrize("kind", variants(PEERS, default=["nystromformer"]))
def test_a_transformer_is_converted_and_tuned(
    kind: str,
    trained_transformer: Path,
    data: Path,
    tmp_path: Path,
) -> None:
    """Dropout of attention, which not all packages have, is not taken over."""
    state, dropping = torch.load(trained_transformer, weights_only=True), tmp_path / "dropping.pt"
    state["cfg"]["model"].attention_dropout = 0.1
    torch.save(state, dropping)
    out, flags = tmp_path / "converted.pt", [*PLUGIN, "--linformer-projection", kind, *FLAGS[kind], "--texts", 0]
    said = run_module("linformer_fairseq.convert", dropping, out, *flags).ok()
    before, after = (read_checkpoint(path) for path in (trained_transformer, out))
    settings = after["cfg"]["model"]
    assert (settings.linformer_projection, settings.linformer_attention) == (kind, "encoder")
    assert settings.attention_dropout == (0.0 if kind in ("nystromformer", "performer") else 0.1)
    assert all(torch.equal(after["model"][name], tensor) for name, tensor in before["model"].items())
    told = shlex.split(said.splitlines()[-1])[1:]
    assert told[told.index("--user-dir") + 1] == PLUGIN[1]
    losses = valid_losses(run("train", *told, "--max-epoch", 3, "--save-dir", tmp_path).ok())
    (converted,) = valid_losses(run("validate", *validate_arguments(data, out), *PLUGIN).ok())
    assert losses[-1] < converted


def test_a_user_dir_that_does_not_exist_is_told(tmp_path: Path) -> None:
    result = run_module("linformer_fairseq.convert", "a.pt", "b.pt", "--user-dir", tmp_path / "none")
    assert result.sentence() == f"error: --user-dir {tmp_path / 'none'} does not exist: name a folder."
