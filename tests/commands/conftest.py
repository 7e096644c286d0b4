"""Small models, trained once for all workers; what fairseq-train printed is in the file `log` beside the checkpoint."""

from pathlib import Path

import pytest

from tests.conftest import Shared
from tests.fairseq_commands import ALL_PLACES, TWO_LEVELS, train, valid_losses

EVERY_FOUR_UPDATES = ["--max-epoch", 3, "--save-interval-updates", 4, "--keep-interval-updates", 3]
CAUSAL = [*TWO_LEVELS, *ALL_PLACES, *EVERY_FOUR_UPDATES, "--eval-bleu", "--eval-bleu-args", '{"beam": 1}']
"""The flags of `trained_causal`, whose checkpoint holds the counts of BLEU."""


def trained_once(shared: Shared, data: Path, name: str, *flags: object, **arch: str) -> Path:
    """Returns the best checkpoint of a training, which must have learned something."""

    def make(folder: Path) -> None:
        output = train(data, folder, *flags, **arch).ok()
        losses = valid_losses(output)
        assert losses[-1] < losses[0]
        (folder / "log").write_text(output)

    return shared(name, make) / "checkpoint_best.pt"


@pytest.fixture(scope="session")
def trained(shared: Shared, data: Path) -> Path:
    """Returns the checkpoint of a Linformer, with earlier ones of its training beside it."""
    return trained_once(shared, data, "linformer", *EVERY_FOUR_UPDATES)


@pytest.fixture(scope="session")
def trained_causal(shared: Shared, data: Path) -> Path:
    """Returns the checkpoint of a model with two levels in all attention, the decoder's self-attention included."""
    return trained_once(shared, data, "causal", *CAUSAL)


@pytest.fixture(scope="session")
def trained_transformer(shared: Shared, data: Path) -> Path:
    """Returns the checkpoint of fairseq's own Transformer of the same size."""
    return trained_once(shared, data, "transformer", arch="transformer_tiny")
