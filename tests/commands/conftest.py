"""Small models, learned once."""

from pathlib import Path

import pytest

from tests.fairseq_commands import ALL_PLACES, PAPER, run, train_arguments, valid_losses


@pytest.fixture(scope="session")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of a small Linformer of the paper's."""
    folder = tmp_path_factory.mktemp("trained")
    output = run("train", *train_arguments(data, folder, *PAPER)).ok()
    first, second = valid_losses(output)
    assert second < first
    return folder / "checkpoint_best.pt"


@pytest.fixture(scope="session")
def trained_causal(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the package's own, with the decoder's self-attention projected too."""
    folder = tmp_path_factory.mktemp("causal")
    output = run("train", *train_arguments(data, folder, *ALL_PLACES)).ok()
    first, second = valid_losses(output)
    assert second < first
    return folder / "checkpoint_best.pt"


@pytest.fixture(scope="session")
def trained_transformer(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkpoint of fairseq's own Transformer of the same size."""
    folder = tmp_path_factory.mktemp("transformer")
    run("train", *train_arguments(data, folder, arch="transformer_tiny")).ok()
    return folder / "checkpoint_best.pt"
