"""A text to study on."""

import random
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences of 2 to 9 words whose translation is the words in capitals."""
    folder = tmp_path_factory.mktemp("text")
    generator = random.Random(3)
    words = [f"w{i}" for i in range(12)]
    for split, size in (("train", 60), ("valid", 12), ("test", 10)):
        lines = [" ".join(generator.choices(words, k=generator.randint(2, 9))) for _ in range(size)]
        (folder / f"{split}.en").write_text("".join(line + "\n" for line in lines))
        (folder / f"{split}.de").write_text("".join(line.upper() + "\n" for line in lines))
    return folder
