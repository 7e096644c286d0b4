"""Small models, trained once for all workers; what fairseq-train printed is in the file `log` beside the checkpoint."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from linformer_fairseq.convert.__main__ import parse
from linformer_fairseq.convert.run import run as convert
from linformer_fairseq.trained import plain_encoder
from tests.conftest import Shared
from tests.fairseq_commands import (
    ALL_PLACES,
    TWO_LEVELS,
    generate_arguments,
    hypotheses,
    run,
    train,
    train_masked,
    valid_losses,
)

EVERY_FOUR_UPDATES = ["--max-epoch", 3, "--save-interval-updates", 4, "--keep-interval-updates", 3]
BLEU = ["--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 8}']
CAUSAL = [*TWO_LEVELS, *ALL_PLACES, *EVERY_FOUR_UPDATES, *BLEU]
"""The flags of `trained_causal`, whose checkpoint holds the counts of BLEU."""

Converting = Callable[..., str]


@pytest.fixture
def converting(capsys: pytest.CaptureFixture[str]) -> Converting:
    """Returns a function that converts in this process, and returns what is printed."""

    def converting(*arguments: object) -> str:
        convert(parse([*map(str, arguments), "--threads", "1"]))
        return capsys.readouterr().out

    return converting


def override_flags() -> list[str]:
    """Returns flags that keep fairseq 0.12.2's own Transformer off a kernel that refuses left-padded batches."""
    return ["--model-overrides", str(plain_encoder())] if plain_encoder() else []


def rows_of(text: str) -> dict[str, list[str]]:
    """Returns the other cells of each row of a conversion's table by its first cell."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return {name: cells for name, *cells in rows}


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


@pytest.fixture(scope="session")
def translated(shared: Shared, data: Path, trained_transformer: Path) -> dict[int, tuple[float, str]]:
    """Returns that model's hypotheses for the test set."""

    def make(folder: Path) -> None:
        output = run("generate", *generate_arguments(data, trained_transformer, *override_flags())).ok()
        (folder / "output").write_text(output)

    return hypotheses((shared("translated", make) / "output").read_text())


@pytest.fixture(scope="session")
def text(shared: Shared) -> Path:
    """Returns the folder of a binarised text whose lines count upwards from random starts."""

    def make(folder: Path) -> None:
        generator = random.Random(1)
        for split, size in (("train", 200), ("valid", 30), ("test", 30)):
            starts = [(generator.randrange(20), generator.randint(3, 20)) for _ in range(size)]
            lines = [" ".join(f"w{(start + i) % 20}" for i in range(length)) for start, length in starts]
            (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
        prefixes = [
            part for split in ("train", "valid", "test") for part in (f"--{split}pref", folder / f"{split}.txt")
        ]
        run("preprocess", "--only-source", *prefixes, "--destdir", folder / "bin").ok()

    return shared("text", make) / "bin"


@pytest.fixture(scope="session")
def trained_roberta(shared: Shared, text: Path) -> Path:
    """Returns the checkpoint of fairseq's own masked language model, trained on that text."""

    def make(folder: Path) -> None:
        losses = valid_losses(train_masked(text, folder, arch="roberta").ok())
        assert losses[-1] < losses[0] - 0.5

    return shared("roberta", make) / "checkpoint_last.pt"
